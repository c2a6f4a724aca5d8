// Thirty-two weights of one row and output, as signed codes, four a word; s: scale and minimum of all of them or of the
// first half, then those of the last half.
struct Block { low: vec4<u32>, high: vec4<u32>, s: vec4<f32> }
struct Codes { low: vec4<u32>, high: vec4<u32> }
const STEPS = 1u;

// Word j: low nibbles are weights 8j … 8j + 3, high ones 8j + 4 … 8j + 7.
fn nibbles(w: vec4<u32>) -> Codes {
    let even = w & vec4<u32>(0x0f0f0f0fu);
    let odd = (w >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    return Codes(vec4<u32>(even.x, odd.x, even.y, odd.y), vec4<u32>(even.z, odd.z, even.w, odd.w));
}
// Word j, bits 2s and 2s + 1 of byte i: weight 16j + 4s + i.
fn twos(w: vec2<u32>) -> Codes {
    let shifts = vec4<u32>(0u, 2u, 4u, 6u);
    return Codes((vec4<u32>(w.x) >> shifts) & vec4<u32>(0x03030303u), (vec4<u32>(w.y) >> shifts) & vec4<u32>(0x03030303u));
}
// Bit s of byte i: weight 4s + i.
fn ones(w: u32) -> Codes {
    let shifts = vec4<u32>(0u, 1u, 2u, 3u);
    return Codes((vec4<u32>(w) >> shifts) & vec4<u32>(0x01010101u), (vec4<u32>(w >> 4u) >> shifts) & vec4<u32>(0x01010101u));
}
// Code i.
fn code_of(block: Block, i: u32) -> f32 {
    let word = select(block.high, block.low, i < 16u)[(i / 4u) % 4u];
    return f32(extractBits(bitcast<i32>(word), 8u * (i % 4u), 8u));
}
