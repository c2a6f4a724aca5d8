// The token of the first largest of row 0's logits: greedy drafting goes on without the host. One workgroup, which joins
// the stretches of the statistics.
// The pass's flags, without the lowest bit, are twice the number of logits; its token is where the token goes.
@group(0) @binding(2) var<storage, read> stats: array<vec4<u32>>;   // [stretches]: largest, sum, index, 0
@group(0) @binding(3) var<storage, read> ids: array<u32>;           // token of each logit
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
const WIDTH = 64u;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) t: u32) {
    let count = run.flags / 2u;
    var top = LOWEST;
    var at = 0xffffffffu;
    for (var s = t; s < (count + 511u) / 512u; s += WIDTH) {
        let own = stats[s];
        if precedes(bitcast<f32>(own.x), own.z, top, at) { top = bitcast<f32>(own.x); at = own.z; }
    }
    first_of_all(t, top, at);
    if t == 0u { tokens[run.token] = ids[min(place[0], count - 1u)]; }
}
