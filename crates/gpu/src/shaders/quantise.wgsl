// Thirty-two numbers of `block` as int8 codes: scale, scale × sum of the first 16 codes, of the last 16, of all.
fn quantise(block: u32) {
    let at = 32u * block;
    var top = 0.0;
    for (var i = 0u; i < 32u; i++) { top = max(top, abs(values[at + i])); }
    var inverse = 0.0;
    if top > 0.0 { inverse = 127.0 / top; }
    var sums = vec2<i32>(0, 0);
    for (var w = 0u; w < 8u; w++) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let code = i32(round(values[at + 4u * w + i] * inverse));
            sums[w / 4u] += code;
            word |= (u32(code) & 255u) << (8u * i);
        }
        codes[8u * block + w] = word;
    }
    let scale = top / 127.0;
    scales[block] = vec4<f32>(scale, scale * f32(sums.x), scale * f32(sums.y), scale * f32(sums.x + sums.y));
}
