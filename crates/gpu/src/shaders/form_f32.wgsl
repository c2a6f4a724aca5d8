// Plain numbers; sums run over the columns in order.
struct Block { w: array<vec4<u32>, 8> }
fn load_block(b: u32) -> Block {
    var block: Block;
    for (var i = 0u; i < 8u; i++) { block.w[i] = weights[8u * b + i]; }
    return block;
}
// --- products
fn dot_block(before: f32, block: Block, at: u32) -> f32 {
    var copy = block;
    var sum = before;
    for (var i = 0u; i < 8u; i++) {
        let x = x_values[8u * at + i];
        let w = bitcast<vec4<f32>>(copy.w[i]);
        sum += w.x * x.x; sum += w.y * x.y; sum += w.z * x.z; sum += w.w * x.w;
    }
    return sum;
}
// --- single weights
fn weight_at(b: u32, i: u32) -> f32 { return bitcast<f32>(weights[8u * b + i / 4u][i % 4u]); }
