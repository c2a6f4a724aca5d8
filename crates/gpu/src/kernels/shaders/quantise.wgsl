// A block of thirty-two numbers as int8 codes: scale, scale × sum of the first 16 codes, of the last 16, of all. Eight
// invocations share a block; `x` is what the own one codes: the four numbers of word t % 8. All invocations of the
// workgroup call it; those that are not `wanted` store nothing.
var<workgroup> tops: array<f32, WORKGROUP>;
var<workgroup> code_sums: array<i32, WORKGROUP>;
const BLOCKS_OF_WORKGROUP = WORKGROUP / 8u;

fn quantise(t: u32, block: u32, wanted: bool, x: vec4<f32>) {
    let word = t % 8u;
    let first = t - word;
    tops[t] = max(max(abs(x.x), abs(x.y)), max(abs(x.z), abs(x.w)));
    workgroupBarrier();
    var top = 0.0;
    for (var i = 0u; i < 8u; i++) { top = max(top, tops[first + i]); }
    var inverse = 0.0;
    if top > 0.0 { inverse = 127.0 / top; }
    let code = vec4<i32>(round(x * inverse));
    code_sums[t] = (code.x + code.y) + (code.z + code.w);
    workgroupBarrier();
    if wanted {
        let bytes = bitcast<vec4<u32>>(code) & vec4<u32>(255u);
        codes[8u * block + word] = (bytes.x | (bytes.y << 8u)) | ((bytes.z << 16u) | (bytes.w << 24u));
        if word == 0u {
            let low = (code_sums[t] + code_sums[t + 1u]) + (code_sums[t + 2u] + code_sums[t + 3u]);
            let high = (code_sums[t + 4u] + code_sums[t + 5u]) + (code_sums[t + 6u] + code_sums[t + 7u]);
            let scale = top / 127.0;
            scales[block] = vec4<f32>(scale, scale * f32(low), scale * f32(high), scale * f32(low + high));
        }
    }
}

// Codes `count` blocks from `first` on, whose numbers the workgroup stored before a barrier.
fn quantise_stored(t: u32, first: u32, count: u32) {
    for (var start = 0u; start < count; start += BLOCKS_OF_WORKGROUP) {
        let own = start + t / 8u;
        let block = first + min(own, count - 1u);
        let at = 32u * block + 4u * (t % 8u);
        quantise(t, block, own < count, vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]));
    }
}
