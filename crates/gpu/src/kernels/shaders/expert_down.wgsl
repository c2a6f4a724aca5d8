// down · inner of one expert of one row, 8 outputs a workgroup: 16 lanes an output, whose sums are those of matrix.wgsl.
// dims: a = (rows of this part, blocks along k, outputs of an expert, first row of this part)
@group(0) @binding(2) var<storage, read> weights: array<Stored>;     // [experts][outputs][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(6) var<storage, read> chosen: array<u32>;         // [m][used]
@group(0) @binding(7) var<storage, read_write> out: array<f32>;      // [m][used][outputs]
const LANES = 16u;
var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let lane = t % LANES;
    let blocks = dims.a.y; let outputs = dims.a.z;
    let first = chosen[wg.z] * outputs + wg.x * 8u;
    if first < dims.a.w || first >= dims.a.w + dims.a.x { return; }
    let units = (blocks + LANES - 1u - lane) / LANES * STEPS;
    for (var half = 0u; half < 2u; half++) {
        let own = half * 4u + t / LANES;
        let n = first - dims.a.w + own;
        var sum = 0.0;
        for (var unit = 0u; unit < units; unit++) {
            let b = lane + unit / STEPS * LANES;
            let step = unit % STEPS;
            sum = add_product(sum, load_block(n, b, step), load_input(wg.z * blocks + b, step));
        }
        partial[t] = sum;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if lane < step { partial[t] += partial[t + step]; }
            workgroupBarrier();
        }
        if lane == 0u { out[wg.z * outputs + wg.x * 8u + own] = partial[t]; }
        workgroupBarrier();
    }
}
