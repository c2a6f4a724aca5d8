// act(gate · x) · (up · x) of one expert of one row, 32 outputs a workgroup, as numbers and as codes: 16 lanes an output, whose
// sums are those of gate_up.wgsl. Experts that lie in another part of the matrices are left to its launch.
// dims: a = (rows of this part, blocks along k, width of an expert, first row of this part); b.x = 1 for GELU;
// b.y = experts of a row
@group(0) @binding(2) var<storage, read> weights: array<Stored>;          // gate: [experts][width][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(4) var<storage, read> up_weights: array<Stored>;
@group(0) @binding(5) var<storage, read> up_scales: array<u32>;
@group(0) @binding(8) var<storage, read> chosen: array<u32>;              // [m][used]
@group(0) @binding(9) var<storage, read_write> values: array<f32>;        // [m][used][width]
@group(0) @binding(10) var<storage, read_write> codes: array<u32>;
@group(0) @binding(11) var<storage, read_write> scales: array<vec4<f32>>;
const LANES = 16u;
const WORKGROUP = 256u;
var<workgroup> gates: array<f32, 256>;
var<workgroup> ups: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let lane = t % LANES;
    let blocks = dims.a.y; let width = dims.a.z;
    let first = chosen[wg.z] * width + wg.x * 32u;
    if first < dims.a.w || first >= dims.a.w + dims.a.x { return; }
    let x_first = wg.z / dims.b.y * blocks;
    let units = (blocks + LANES - 1u - lane) / LANES * STEPS;
    for (var half = 0u; half < 2u; half++) {
        let own = half * 16u + t / LANES;
        let n = first - dims.a.w + own;
        var gate = 0.0;
        var up = 0.0;
        for (var unit = 0u; unit < units; unit++) {
            let b = lane + unit / STEPS * LANES;
            let step = unit % STEPS;
            let x = load_input(x_first + b, step);
            gate = add_product(gate, load_block(n, b, step), x);
            up = add_product(up, up_block(n, b, step), x);
        }
        gates[t] = gate;
        ups[t] = up;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if lane < step { gates[t] += gates[t + step]; ups[t] += ups[t + step]; }
            workgroupBarrier();
        }
        if lane == 0u { values[wg.z * width + wg.x * 32u + own] = gated(gates[t], ups[t]); }
        workgroupBarrier();
    }
    storageBarrier();
    workgroupBarrier();
    let block = wg.z * width / 32u + wg.x;
    let at = 32u * block + 4u * (t % 8u);
    quantise(t, block, t < 8u, vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]));
}
// act(g) · u, as in gate_up_buffers.wgsl.
fn gated(g: f32, u: f32) -> f32 {
    let z = select(g, 1.59576912 * (g + 0.044715 * g * g * g), dims.b.x == 1u);
    return g / (1.0 + exp_fixed(-z)) * u;
}
