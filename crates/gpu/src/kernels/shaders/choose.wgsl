// Which experts a row runs, and their weights: those with the largest probabilities, of equal ones those with lower numbers,
// in the order of their numbers. The weight of the dense layer beside them is the sigmoid of its gate, or 1. One workgroup a
// row; every sum runs over all experts in order.
// dims: a = (experts, experts of a row, 1 if their weights are scaled to the sum 1, numbers of a row);
// b.x = 1 if there is a gate, after the experts' numbers; c.x = factor of the weights
@group(0) @binding(2) var<storage, read> logits: array<f32>;           // [m][numbers]
@group(0) @binding(3) var<storage, read_write> chosen: array<u32>;     // [m][used]
@group(0) @binding(4) var<storage, read_write> shares: array<f32>;     // [m][used + 1]
var<workgroup> odds: array<f32, 1024>;
var<workgroup> runs: array<u32, 1024>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let count = dims.a.x; let used = dims.a.y;
    let first = wg.x * dims.a.w;
    var top = logits[first];
    for (var i = 1u; i < count; i++) { top = max(top, logits[first + i]); }
    for (var i = t; i < count; i += 64u) { odds[i] = exp_fixed(logits[first + i] - top); }
    workgroupBarrier();
    for (var i = t; i < count; i += 64u) {
        var better = 0u;
        for (var j = 0u; j < count; j++) {
            if odds[j] > odds[i] || (odds[j] == odds[i] && j < i) { better++; }
        }
        runs[i] = select(0u, 1u, better < used);
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < count; i++) {
        if dims.a.z == 0u || runs[i] == 1u { sum += odds[i]; }
    }
    for (var i = t; i < count; i += 64u) {
        var place = 0u;
        for (var j = 0u; j < i; j++) { place += runs[j]; }
        // numbers that are not finite could choose more
        if runs[i] == 1u && place < used {
            chosen[wg.x * used + place] = i;
            shares[wg.x * (used + 1u) + place] = odds[i] / sum * dims.c.x;
        }
    }
    if t == 0u {
        var share = 1.0;
        if dims.b.x == 1u { share = 1.0 / (1.0 + exp_fixed(-logits[first + count])); }
        shares[wg.x * (used + 1u) + used] = share;
    }
}
