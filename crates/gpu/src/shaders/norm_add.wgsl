// Adds the normed output of a layer to the residual stream, (x + y / sqrt(mean(y²) + eps) · weight) · scale, and norms the
// sum for the next matrix if there is one, as numbers and as codes. One workgroup a row.
// dims: a = (d, 1 if there is a next matrix, 0, 0); c = (eps, scale, 0, 0)
@group(0) @binding(2) var<storage, read> y: array<f32>;                  // [m][d]
@group(0) @binding(3) var<storage, read> weight: array<f32>;             // [d]
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;        // [d]
@group(0) @binding(5) var<storage, read_write> x: array<f32>;            // [m][d]
@group(0) @binding(6) var<storage, read_write> values: array<f32>;       // [m][d]
@group(0) @binding(7) var<storage, read_write> codes: array<u32>;        // [m][d / 4]
@group(0) @binding(8) var<storage, read_write> scales: array<vec4<f32>>; // [m][d / 32]
var<workgroup> tree: array<f32, 64>;

fn inverse_size(sum: f32, t: u32) -> f32 {
    tree[t] = sum;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if t < step { tree[t] += tree[t + step]; }
        workgroupBarrier();
    }
    let all = tree[0];
    workgroupBarrier();
    return 1.0 / sqrt(all / f32(dims.a.x) + dims.c.x);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let d = dims.a.x;
    let row = wg.x * d;
    var sum = 0.0;
    for (var i = t; i < d; i += 64u) { sum += y[row + i] * y[row + i]; }
    let inverse = inverse_size(sum, t);
    sum = 0.0;
    for (var i = t; i < d; i += 64u) {
        let added = (x[row + i] + y[row + i] * inverse * weight[i]) * dims.c.y;
        x[row + i] = added;
        sum += added * added;
    }
    if dims.a.y == 0u { return; }
    storageBarrier();
    let next = inverse_size(sum, t);
    for (var block = t; block < d / 32u; block += 64u) {
        for (var i = 32u * block; i < 32u * block + 32u; i++) {
            values[row + i] = x[row + i] * next * next_weight[i];
        }
        quantise(row / 32u + block);
    }
}
