// What the blocks add for each token: half looked up (already in `inputs`), half computed from its embedding and normed:
// (looked up + projected · scale / sqrt(mean + eps) · weight) / √2. One workgroup a block and row.
// dims: a = (blocks, width of an input, 0, 0); c = (eps, scale, 0, 0)
@group(0) @binding(2) var<storage, read> projected: array<f32>;      // [m][blocks][width]
@group(0) @binding(3) var<storage, read> weight: array<f32>;         // [width]
@group(0) @binding(4) var<storage, read_write> inputs: array<f32>;   // [m][blocks][width]
var<workgroup> tree: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let width = dims.a.y;
    let at = (wg.y * dims.a.x + wg.x) * width;
    var sum = 0.0;
    for (var i = t; i < width; i += 64u) {
        let x = projected[at + i] * dims.c.y;
        sum += x * x;
    }
    tree[t] = sum;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if t < step { tree[t] += tree[t + step]; }
        workgroupBarrier();
    }
    let inverse = 1.0 / sqrt(tree[0] / f32(width) + dims.c.x);
    for (var i = t; i < width; i += 64u) {
        let x = projected[at + i] * dims.c.y;
        inputs[at + i] = (x * inverse * weight[i] + inputs[at + i]) * 0.70710678;
    }
}
