// Rows of the embedding of the pass's tokens; a part of a matrix writes only its own. One workgroup a row.
// dims: a = (first row of this part, blocks, rows of it, 0); c.x = what embeddings are multiplied by
@group(0) @binding(2) var<storage, read> weights: array<Stored>;
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
@group(0) @binding(5) var<storage, read_write> x: array<f32>; // [m][d]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let d = 32u * dims.a.y;
    let token = tokens[run.token + wg.x] - dims.a.x;
    let zero = wg.x == 0u && (run.flags & 1u) == 1u;
    if token >= dims.a.z { return; }
    for (var i = t; i < d; i += 256u) {
        let number = weight_of(load_block(token, i / 32u, i % 32u / 8u), i % 32u);
        x[wg.x * d + i] = select(number * dims.c.x, 0.0, zero);
    }
}
