// act(gate · x) · (up · x) of 32 outputs a workgroup, as numbers and as codes: 16 lanes an output, 16 outputs at a time.
const LANES = 16u;
var<workgroup> gates: array<f32, 256 * ROWS_AT_ONCE>;
var<workgroup> ups: array<f32, 256 * ROWS_AT_ONCE>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let lane = t % LANES;
    let first = wg.z * 8u;
    let blocks = dims.a.y;
    for (var part = 0u; part < 2u; part++) {
        let n = wg.x * 32u + part * 16u + t / LANES;
        //each r
        var gate_$r = 0.0;
        var up_$r = 0.0;
        //end r
        for (var b = lane; b < blocks; b += LANES) {
            for (var step = 0u; step < STEPS; step++) {
                let g = load_block(n, b, step);
                let u = up_block(n, b, step);
                //each r
                let x_$r = load_input((first + $r) * blocks + b, step);
                gate_$r = add_product(gate_$r, g, x_$r);
                up_$r = add_product(up_$r, u, x_$r);
                //end r
            }
        }
        var gate = array<f32, ROWS>(GATES);
        var up = array<f32, ROWS>(UPS);
        for (var from_ = 0u; from_ < ROWS; from_ += ROWS_AT_ONCE) {
            for (var r = 0u; r < ROWS_AT_ONCE; r++) {
                gates[256u * r + t] = gate[from_ + r];
                ups[256u * r + t] = up[from_ + r];
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
                if row < run.m { values[row * dims.a.z + dims.a.w + n] = gated(g, u); }
            }
            workgroupBarrier();
        }
    }
    storageBarrier();
    if t < ROWS && first + t < run.m { quantise(((first + t) * dims.a.z + dims.a.w) / 32u + wg.x); }
}
