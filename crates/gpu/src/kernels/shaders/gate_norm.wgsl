// Norms the answers of each value head, times a weight and the SiLU of its gates, as numbers and as codes. One workgroup
// so many heads (whole blocks of 32 numbers) and row.
// dims: a = (value heads, width of a value, width of a row of gates, where they begin in it); b.x = heads of a
// workgroup; c.x = eps
@group(0) @binding(2) var<storage, read> answers: array<f32>;            // [m][value heads][width of a value]
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read> weight: array<f32>;             // [width of a value]
@group(0) @binding(5) var<storage, read_write> values: array<f32>;       // [m][value heads][width of a value]
@group(0) @binding(6) var<storage, read_write> codes: array<u32>;
@group(0) @binding(7) var<storage, read_write> scales: array<vec4<f32>>;
const WORKGROUP = 64u;
var<workgroup> tree: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let dv = dims.a.y;
    let row = wg.y * dims.a.x * dv;
    for (var h = wg.x * dims.b.x; h < wg.x * dims.b.x + dims.b.x; h++) {
        let at = row + h * dv;
        var sum = 0.0;
        for (var i = t; i < dv; i += 64u) { sum += answers[at + i] * answers[at + i]; }
        tree[t] = sum;
        workgroupBarrier();
        for (var step = 32u; step > 0u; step /= 2u) {
            if t < step { tree[t] += tree[t + step]; }
            workgroupBarrier();
        }
        let inverse = 1.0 / sqrt(tree[0] / f32(dv) + dims.c.x);
        workgroupBarrier();
        for (var i = t; i < dv; i += 64u) {
            let gate = gates[wg.y * dims.a.z + dims.a.w + h * dv + i];
            values[at + i] = answers[at + i] * inverse * weight[i] * (gate / (1.0 + exp_fixed(-gate)));
        }
    }
    storageBarrier();
    workgroupBarrier();
    let blocks = dims.b.x * dv / 32u;
    quantise_stored(t, row / 32u + wg.x * blocks, blocks);
}
