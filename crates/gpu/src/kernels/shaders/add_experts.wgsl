// Adds the results of a row's experts to the residual stream, each times its weight, in the order of their numbers, then that
// of the dense layer. One workgroup a row.
// dims: a = (d, experts of a row, 1 if there is a dense layer, 0)
@group(0) @binding(2) var<storage, read> y: array<f32>;           // [m][used][d]
@group(0) @binding(3) var<storage, read> shares: array<f32>;      // [m][used + 1]
@group(0) @binding(4) var<storage, read> dense: array<f32>;       // [m][d]
@group(0) @binding(5) var<storage, read_write> x: array<f32>;     // [m][d]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let d = dims.a.x; let used = dims.a.y; let row = wg.x;
    for (var i = t; i < d; i += 256u) {
        var sum = 0.0;
        for (var s = 0u; s < used; s++) { sum += shares[row * (used + 1u) + s] * y[(row * used + s) * d + i]; }
        if dims.a.z == 1u { sum += shares[row * (used + 1u) + used] * dense[row * d + i]; }
        x[row * d + i] += sum;
    }
}
