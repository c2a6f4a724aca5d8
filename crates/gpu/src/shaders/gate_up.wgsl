// silu(gate · x) · (up · x) of 32 outputs a workgroup, as numbers and as codes: 16 lanes an output, 16 outputs at a time.
// dims: a = (rows of this part, blocks along k, width of out, first row of this part)
@group(0) @binding(2) var<storage, read> weights: array<Stored>;          // gate: [n][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(4) var<storage, read> up_weights: array<Stored>;
@group(0) @binding(5) var<storage, read> up_scales: array<u32>;
@group(0) @binding(6) var<storage, read> x_values: array<vec4<f32>>;     // [m][blocks][8]
@group(0) @binding(7) var<storage, read> x_codes: array<vec4<u32>>;      // [m][blocks][2]
@group(0) @binding(8) var<storage, read> x_scales: array<vec4<f32>>;     // [m][blocks]
@group(0) @binding(9) var<storage, read_write> values: array<f32>;       // [m][width]
@group(0) @binding(10) var<storage, read_write> codes: array<u32>;       // [m][width / 4]
@group(0) @binding(11) var<storage, read_write> scales: array<vec4<f32>>; // [m][width / 32]
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
                if row < run.m { values[row * dims.a.z + dims.a.w + n] = g / (1.0 + exp_fixed(-g)) * u; }
            }
            workgroupBarrier();
        }
    }
    storageBarrier();
    if t < ROWS && first + t < run.m { quantise(((first + t) * dims.a.z + dims.a.w) / 32u + wg.x); }
}
