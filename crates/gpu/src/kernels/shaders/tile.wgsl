// Products of 64 rows with 64 columns a workgroup, for prompts: weights are unpacked, and activations read, once into
// workgroup memory, then each invocation adds up four rows × four columns.
//
// Sums are those of matrix.wgsl, bit for bit: there, lane l adds blocks l, l + 16, … one after the other, and a tree joins
// lanes 8 apart, then 4, 2 and 1. Here the lanes come one after the other in the order 0, 8, 4, 12, 2, …, so that the
// tree needs four sums that wait, like the digits of a binary counter, and not sixteen.
const TILE = 64u;
const LANES = 16u;
const UNITS = STEPS * BLOCKS_AT_ONCE;
var<workgroup> w_tile: array<Block, TILE * UNITS>;
var<workgroup> x_tile: array<Input, TILE * UNITS>;

// Rows y, y + 16, …, each with columns x, x + 16, …: x and y are the digits of t.
fn sums_of(t: u32, column: u32, first: u32) -> array<vec4<f32>, 4> {
    let blocks = dims.a.y;
    let x = t % 16u;
    let y = t / 16u;
    //each i
    var sum_$i: vec4<f32>;
    //each w
    var waits_$w_$i: vec4<f32>;
    //end w
    //end i
    for (var turn = 0u; turn < LANES; turn++) {
        //each i
        sum_$i = vec4<f32>();
        //end i
        for (var b = reverseBits(turn) >> 28u; b < blocks; b += LANES * BLOCKS_AT_ONCE) {
            for (var at = t; at < TILE * UNITS; at += 256u) {
                let own = b + at / TILE / STEPS * LANES;
                if own < blocks {
                    let step = at / TILE % STEPS;
                    w_tile[at] = load_column(column, at % TILE, own, step);
                    x_tile[at] = load_input(min(first + at % TILE, run.m - 1u) * blocks + own, step);
                }
            }
            workgroupBarrier();
            let units = min(UNITS, ((blocks - b - 1u) / LANES + 1u) * STEPS);
            for (var unit = 0u; unit < units; unit++) {
                //each j
                let w_$j = w_tile[unit * TILE + x + 16u * $j];
                //end j
                //each i
                let x_$i = x_tile[unit * TILE + y + 16u * $i];
                sum_$i.x = add_product(sum_$i.x, w_0u, x_$i);
                sum_$i.y = add_product(sum_$i.y, w_1u, x_$i);
                sum_$i.z = add_product(sum_$i.z, w_2u, x_$i);
                sum_$i.w = add_product(sum_$i.w, w_3u, x_$i);
                //end i
            }
            workgroupBarrier();
        }
        //each w
        if (turn & (1u << $w)) == 0u {
            //each i
            waits_$w_$i = sum_$i;
            //end i
            continue;
        }
        //each i
        sum_$i = waits_$w_$i + sum_$i;
        //end i
        //end w
    }
    return array<vec4<f32>, 4>(sum_0u, sum_1u, sum_2u, sum_3u);
}
