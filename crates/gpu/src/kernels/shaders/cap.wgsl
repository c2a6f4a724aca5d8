// Caps logits in place: cap · tanh(x / cap). One workgroup a stretch of 512 and row.
// dims: a.x = width of a row; c.x = cap
@group(0) @binding(2) var<storage, read_write> logits: array<f32>; // [m][v]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let last = min(wg.x * 512u + 512u, dims.a.x);
    let row = wg.y * dims.a.x;
    for (var i = wg.x * 512u + t; i < last; i += 64u) { logits[row + i] = capped(logits[row + i], dims.c.x); }
}
