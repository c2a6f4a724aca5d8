// Norms a part of each row in place: queries, or keys, of all heads at once. One workgroup a row.
// dims: a = (width of a row, first number of the part, its length, 0); c.x = eps
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>; // [m][width / 4]
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;  // [length / 4]
const WORKGROUP = 256u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let fours = dims.a.z / 4u;
    let first = (wg.x * dims.a.x + dims.a.y) / 4u;
    var sum = 0.0;
    for (var i = t; i < fours; i += WORKGROUP) {
        let v = x[first + i];
        sum += v.x * v.x; sum += v.y * v.y; sum += v.z * v.z; sum += v.w * v.w;
    }
    let inverse = inverse_size(t, sum, dims.a.z);
    for (var i = t; i < fours; i += WORKGROUP) { x[first + i] = x[first + i] * inverse * weight[i]; }
}
