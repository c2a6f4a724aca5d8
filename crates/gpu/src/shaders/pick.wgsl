// The token of the first largest of row 0's logits: greedy drafting goes on without the host. One workgroup.
// The pass's flags, without the lowest bit, are twice the number of logits; its token is where the token goes.
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> ids: array<u32>;           // token of each logit
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
var<workgroup> best: array<f32, 256>;
var<workgroup> place: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) t: u32) {
    var top = -3.4028234e38;
    var at = 0xffffffffu;
    for (var i = t; i < run.flags / 2u; i += 256u) {
        if logits[i] > top { top = logits[i]; at = i; }
    }
    best[t] = top;
    place[t] = at;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step /= 2u) {
        if t < step {
            let other = best[t + step];
            if other > best[t] || (other == best[t] && place[t + step] < place[t]) {
                best[t] = other;
                place[t] = place[t + step];
            }
        }
        workgroupBarrier();
    }
    if t == 0u { tokens[run.token] = ids[min(place[0], run.flags / 2u - 1u)]; }
}
