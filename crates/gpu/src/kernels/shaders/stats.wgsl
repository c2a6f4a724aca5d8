// What greedy decoding asks of a row of logits: of each stretch of 512 the first largest logit, its index, and the sum
// of e^(logit − largest), NaN if a logit is not finite. One workgroup a stretch and row.
// dims: a = (logits of a row as stored, stretches, 0, 0); the pass says how many count
@group(0) @binding(2) var<storage, read> logits: array<f32>;             // [m][v]
@group(0) @binding(3) var<storage, read_write> stats: array<vec4<u32>>;  // [m][stretches]: largest, sum, index, 0
const WIDTH = 64u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first = wg.x * 512u;
    let last = min(first + 512u, select(run.flags / 2u, dims.a.x, run.flags < 2u));
    let row = wg.y * dims.a.x;
    // eight of the stretch each
    //each v
    let i_$v = first + t + 64u * $v;
    let x_$v = logits[row + min(i_$v, last - 1u)];
    //end v
    var top = LOWEST;
    var at = first;
    //each v
    if i_$v < last && x_$v > top { top = x_$v; at = i_$v; }
    //end v
    first_of_all(t, top, at);
    let most = best[0];
    let found = place[0];
    workgroupBarrier();
    var sum = 0.0;
    var odd = 0u; // by its bits: compilers may assume that numbers are finite
    //each v
    if i_$v < last {
        sum += exp_fixed(x_$v - most);
        if (bitcast<u32>(x_$v) & 0x7f800000u) == 0x7f800000u { odd = 1u; }
    }
    //end v
    best[t] = sum;
    place[t] = odd;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if t < step {
            best[t] += best[t + step];
            place[t] |= place[t + step];
        }
        workgroupBarrier();
    }
    if t == 0u {
        let total = select(bitcast<u32>(best[0]), 0x7fc00000u, place[0] > 0u);
        stats[wg.y * dims.a.y + wg.x] = vec4<u32>(bitcast<u32>(most), total, found, 0u);
    }
}
