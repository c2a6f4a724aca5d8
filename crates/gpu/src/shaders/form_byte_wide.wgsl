// Four weights a word, signed; scale and minimum of each half.
struct Block { low: vec4<u32>, high: vec4<u32>, s: vec4<f32> }
fn load_block(b: u32) -> Block { return Block(weights[2u * b], weights[2u * b + 1u], SCALES(weight_scales, b)); }
// --- products
fn dot16(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}
fn dot_block(before: f32, block: Block, at: u32) -> f32 {
    let x = x_scales[at];
    let low = (before + (block.s.x * x.x) * f32(dot16(block.low, x_codes[2u * at]))) + block.s.y * x.y;
    return (low + (block.s.z * x.x) * f32(dot16(block.high, x_codes[2u * at + 1u]))) + block.s.w * x.z;
}
// --- single weights
fn weight_at(b: u32, i: u32) -> f32 {
    let word = weights[2u * b + i / 16u][(i / 4u) % 4u];
    let s = SCALES(weight_scales, b);
    let code = f32(extractBits(bitcast<i32>(word), 8u * (i % 4u), 8u));
    if i < 16u { return s.x * code + s.y; }
    return s.z * code + s.w;
}
