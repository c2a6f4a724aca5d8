// out (+)= weights · activations of up to ROWS rows: 16 lanes an output row; a lane has OUTPUTS of them, so that it
// reads activations once for all. A lane takes every 16th block and adds products one after the other (drivers turn
// a + (b + c) into (a + b) + c), then a tree adds the lanes: the same sums in the same order for any number of rows. Lanes
// less than SHUFFLED apart are added by subgroup operations, if there are any: the same pairs, and so the same bits.
// Neighbouring lanes read neighbouring blocks.
const LANES = 16u;
var<workgroup> partial: array<f32, 64 * ROWS * OUTPUTS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let lane = t % LANES;
    let n = (wg.y * dims.b.y + wg.x) * (4u * OUTPUTS) + t / LANES;
    let first = wg.z * 8u;
    let blocks = dims.a.y;
    //each o
    let n_$o = min(n + $o * 4u, dims.a.x - 1u);
    //each r
    var sum_$o_$r = 0.0;
    //end r
    //end o
    let units = (blocks + LANES - 1u - lane) / LANES * STEPS;
    var unit = 0u;
    for (; unit + 4u <= units; unit += 4u) {
        //each u
        let b_$u = lane + (unit + $u) / STEPS * LANES;
        //each o
        let block_$u_$o = load_block(n_$o, b_$u, (unit + $u) % STEPS);
        //end o
        //end u
        //each u
        //each r
        let x_$u_$r = load_input((first + $r) * blocks + b_$u, (unit + $u) % STEPS);
        //each o
        sum_$o_$r = add_product(sum_$o_$r, block_$u_$o, x_$u_$r);
        //end o
        //end r
        //end u
    }
    for (; unit < units; unit++) {
        let b = lane + unit / STEPS * LANES;
        let step = unit % STEPS;
        //each o
        let block_$o = load_block(n_$o, b, step);
        //end o
        //each r
        let x_$r = load_input((first + $r) * blocks + b, step);
        //each o
        sum_$o_$r = add_product(sum_$o_$r, block_$o, x_$r);
        //end o
        //end r
    }
    //each o
    //each r
    partial[64u * ($o * ROWS + $r) + t] = sum_$o_$r;
    //end r
    //end o
    workgroupBarrier();
    for (var step = LANES / 2u; step >= SHUFFLED; step /= 2u) {
        if lane < step {
            for (var i = 0u; i < ROWS * OUTPUTS; i++) { partial[64u * i + t] += partial[64u * i + t + step]; }
        }
        workgroupBarrier();
    }
    //shuffles
    // the lanes share what is written
    for (var i = lane; i < ROWS * OUTPUTS; i += LANES) {
        let row = first + i % ROWS;
        let own = n + i / ROWS * 4u;
        if row < run.m && own < dims.a.x {
            let sum = partial[64u * i + t - lane];
            let at = row * dims.a.z + dims.a.w + own;
            if dims.b.x == 1u { out[at] += sum; } else { out[at] = sum; }
        }
    }
}
