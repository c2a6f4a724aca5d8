// act(gate · x) · (up · x) of 32 outputs a workgroup, as numbers and as codes: 16 lanes an output; a lane has outputs n and
// n + 16 of both, so that it reads activations once for four.
const LANES = 16u;
const WORKGROUP = 256u;
var<workgroup> gates: array<f32, 256 * ROWS_AT_ONCE>;
var<workgroup> ups: array<f32, 256 * ROWS_AT_ONCE>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let lane = t % LANES;
    let first = wg.z * 8u;
    let blocks = dims.a.y;
    //each o
    let n_$o = wg.x * 32u + $o * 16u + t / LANES;
    //each r
    var gate_$o_$r = 0.0;
    var up_$o_$r = 0.0;
    //end r
    //end o
    let units = (blocks + LANES - 1u - lane) / LANES * STEPS;
    var unit = 0u;
    for (; unit + 2u <= units; unit += 2u) {
        //each h
        let b_$h = lane + (unit + $h) / STEPS * LANES;
        //each o
        let g_$h_$o = load_block(n_$o, b_$h, (unit + $h) % STEPS);
        let u_$h_$o = up_block(n_$o, b_$h, (unit + $h) % STEPS);
        //end o
        //end h
        //each h
        //each r
        let x_$h_$r = load_input((first + $r) * blocks + b_$h, (unit + $h) % STEPS);
        //each o
        gate_$o_$r = add_product(gate_$o_$r, g_$h_$o, x_$h_$r);
        up_$o_$r = add_product(up_$o_$r, u_$h_$o, x_$h_$r);
        //end o
        //end r
        //end h
    }
    for (; unit < units; unit++) {
        let b = lane + unit / STEPS * LANES;
        let step = unit % STEPS;
        //each o
        let g_$o = load_block(n_$o, b, step);
        let u_$o = up_block(n_$o, b, step);
        //end o
        //each r
        let x_$r = load_input((first + $r) * blocks + b, step);
        //each o
        gate_$o_$r = add_product(gate_$o_$r, g_$o, x_$r);
        up_$o_$r = add_product(up_$o_$r, u_$o, x_$r);
        //end o
        //end r
    }
    //each o
    var gate_of_$o = array<f32, ROWS>(GATES);
    var up_of_$o = array<f32, ROWS>(UPS);
    for (var from_ = 0u; from_ < ROWS; from_ += ROWS_AT_ONCE) {
        for (var r = 0u; r < ROWS_AT_ONCE; r++) {
            gates[256u * r + t] = gate_of_$o[from_ + r];
            ups[256u * r + t] = up_of_$o[from_ + r];
        }
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if lane < step {
                for (var r = 0u; r < ROWS_AT_ONCE; r++) {
                    gates[256u * r + t] += gates[256u * r + t + step];
                    ups[256u * r + t] += ups[256u * r + t + step];
                }
            }
            workgroupBarrier();
        }
        if lane < ROWS_AT_ONCE {
            let row = first + from_ + lane;
            let g = gates[256u * lane + t - lane];
            let u = ups[256u * lane + t - lane];
            if row < run.m { values[row * dims.a.z + dims.a.w + n_$o] = gated(g, u); }
        }
        workgroupBarrier();
    }
    //end o
    storageBarrier();
    workgroupBarrier();
    let row = first + min(t / 8u, ROWS - 1u);
    let wanted = t / 8u < ROWS && row < run.m;
    let block = (min(row, run.m - 1u) * dims.a.z + dims.a.w) / 32u + wg.x;
    let at = 32u * block + 4u * (t % 8u);
    quantise(t, block, wanted, vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]));
}
