// Eight products of a query and a key, after those before them.
fn add_eight(before: f32, low: vec4<f32>, high: vec4<f32>, key: vec4<u32>) -> f32 {
    let a = unpack2x16float(key.x); let b = unpack2x16float(key.y);
    let c = unpack2x16float(key.z); let d = unpack2x16float(key.w);
    var sum = before;
    sum += low.x * a.x; sum += low.y * a.y; sum += low.z * b.x; sum += low.w * b.y;
    sum += high.x * c.x; sum += high.y * c.y; sum += high.z * d.x; sum += high.w * d.y;
    return sum;
}
