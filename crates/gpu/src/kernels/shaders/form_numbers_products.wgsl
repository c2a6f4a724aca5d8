// Eight activations as numbers; sums run over the columns in order.
struct Input { low: vec4<f32>, high: vec4<f32> }
fn load_input(b: u32, step: u32) -> Input {
    return Input(x_value(8u * b + 2u * step), x_value(8u * b + 2u * step + 1u));
}
fn no_input() -> Input { return Input(vec4<f32>(), vec4<f32>()); }
fn add_product(before: f32, w: Block, x: Input) -> f32 {
    var sum = before;
    sum += w.low.x * x.low.x; sum += w.low.y * x.low.y; sum += w.low.z * x.low.z; sum += w.low.w * x.low.w;
    sum += w.high.x * x.high.x; sum += w.high.y * x.high.y; sum += w.high.z * x.high.z; sum += w.high.w * x.high.w;
    return sum;
}
