// Word j: low nibbles are weights 8j … 8j + 3, high ones 8j + 4 … 8j + 7.
struct Block { w: vec4<u32>, s: vec2<f32> }
fn load_block(b: u32) -> Block { return Block(weights[b], SCALES(weight_scales, b)); }
// --- products
fn dot_block(before: f32, block: Block, at: u32) -> f32 {
    let low = block.w & vec4<u32>(0x0f0f0f0fu);
    let high = (block.w >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    let a = x_codes[2u * at];
    let b = x_codes[2u * at + 1u];
    let sum = dot4I8Packed(low.x, a.x) + dot4I8Packed(high.x, a.y) + dot4I8Packed(low.y, a.z) + dot4I8Packed(high.y, a.w)
        + dot4I8Packed(low.z, b.x) + dot4I8Packed(high.z, b.y) + dot4I8Packed(low.w, b.z) + dot4I8Packed(high.w, b.w);
    let x = x_scales[at];
    return (before + (block.s.x * x.x) * f32(sum)) + block.s.y * x.w;
}
// --- single weights
fn weight_at(b: u32, i: u32) -> f32 {
    let block = load_block(b);
    let code = (block.w[i / 8u] >> (8u * (i % 4u) + 4u * ((i / 4u) % 2u))) & 15u;
    return block.s.x * f32(code) + block.s.y;
}
