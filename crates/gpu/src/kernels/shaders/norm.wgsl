// x / sqrt(mean(x²) + eps) · weight of each row, or x itself, as numbers and as codes. One workgroup a row.
// dims: a = (d, 1 for x itself, 0, 0); c.x = eps
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;            // [m][d / 4]
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;       // [d / 4]
@group(0) @binding(4) var<storage, read_write> values: array<f32>;       // [m][d]
@group(0) @binding(5) var<storage, read_write> codes: array<u32>;        // [m][d / 4]
@group(0) @binding(6) var<storage, read_write> scales: array<vec4<f32>>; // [m][d / 32]
const WORKGROUP = 256u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let fours = dims.a.x / 4u;
    let row = wg.x * fours;
    var sum = 0.0;
    for (var i = t; i < fours; i += WORKGROUP) {
        let v = x[row + i];
        sum += v.x * v.x; sum += v.y * v.y; sum += v.z * v.z; sum += v.w * v.w;
    }
    let inverse = inverse_size(t, sum, dims.a.x);
    for (var start = 0u; start < fours; start += WORKGROUP) {
        let i = min(start + t, fours - 1u);
        let v = select(x[row + i] * inverse * weight[i], x[row + i], dims.a.y == 1u);
        let wanted = start + t < fours;
        if wanted {
            values[4u * (row + i)] = v.x; values[4u * (row + i) + 1u] = v.y;
            values[4u * (row + i) + 2u] = v.z; values[4u * (row + i) + 3u] = v.w;
        }
        quantise(t, (row + i) / 8u, wanted, v);
    }
}
