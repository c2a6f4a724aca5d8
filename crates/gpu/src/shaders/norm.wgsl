// x / sqrt(mean(x²) + eps) · weight of each row, or x itself, as numbers and as codes. One workgroup a row.
// dims: a = (d, 1 for x itself, 0, 0); c.x = eps
@group(0) @binding(2) var<storage, read> x: array<f32>;                  // [m][d]
@group(0) @binding(3) var<storage, read> weight: array<f32>;             // [d]
@group(0) @binding(4) var<storage, read_write> values: array<f32>;       // [m][d]
@group(0) @binding(5) var<storage, read_write> codes: array<u32>;        // [m][d / 4]
@group(0) @binding(6) var<storage, read_write> scales: array<vec4<f32>>; // [m][d / 32]
var<workgroup> tree: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let d = dims.a.x;
    let row = wg.x * d;
    var sum = 0.0;
    for (var i = t; i < d; i += 64u) { sum += x[row + i] * x[row + i]; }
    tree[t] = sum;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if t < step { tree[t] += tree[t + step]; }
        workgroupBarrier();
    }
    let inverse = 1.0 / sqrt(tree[0] / f32(d) + dims.c.x);
    for (var block = t; block < d / 32u; block += 64u) {
        for (var i = 32u * block; i < 32u * block + 32u; i++) {
            values[row + i] = select(x[row + i] * inverse * weight[i], x[row + i], dims.a.y == 1u);
        }
        quantise(row / 32u + block);
    }
}
