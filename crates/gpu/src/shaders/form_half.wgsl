// Two numbers a word; sums run over the columns in order.
struct Block { w: array<vec4<u32>, 4> }
fn load_block(b: u32) -> Block {
    return Block(array(weights[4u * b], weights[4u * b + 1u], weights[4u * b + 2u], weights[4u * b + 3u]));
}
fn bf16_pair(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}
// --- products
fn dot_block(before: f32, block: Block, at: u32) -> f32 {
    var copy = block;
    var sum = before;
    for (var i = 0u; i < 4u; i++) {
        let low = x_values[8u * at + 2u * i];
        let high = x_values[8u * at + 2u * i + 1u];
        let a = UNPACK(copy.w[i].x); let b = UNPACK(copy.w[i].y);
        let c = UNPACK(copy.w[i].z); let d = UNPACK(copy.w[i].w);
        sum += a.x * low.x; sum += a.y * low.y; sum += b.x * low.z; sum += b.y * low.w;
        sum += c.x * high.x; sum += c.y * high.y; sum += d.x * high.z; sum += d.y * high.w;
    }
    return sum;
}
// --- single weights
fn weight_at(b: u32, i: u32) -> f32 { return UNPACK(weights[4u * b + i / 8u][(i / 2u) % 4u])[i % 2u]; }
