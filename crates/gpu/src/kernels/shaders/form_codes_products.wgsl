// Thirty-two activations as codes; s: scale, scale × sum of the first 16 codes, of the last 16, of all.
struct Input { low: vec4<u32>, high: vec4<u32>, s: vec4<f32> }
fn load_input(b: u32, step: u32) -> Input { return Input(x_code(2u * b), x_code(2u * b + 1u), x_scale(b)); }
fn no_input() -> Input { return Input(vec4<u32>(), vec4<u32>(), vec4<f32>()); }
fn dot16(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}
