// The 32 largest logits of a row, largest first, equal ones by index; and the logit that the row's own token has in the
// row that it continues. Each stretch of 512 offers its largest logit; the stretch that gives one offers its next. One
// workgroup a row.
// dims: a = (logits of a row as stored, stretches of a row as stored, 0, 0)
@group(0) @binding(2) var<storage, read> logits: array<f32>;            // [m][v]
@group(0) @binding(3) var<storage, read> stats: array<vec4<u32>>;       // [m][stretches]: largest, sum, index, 0
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
@group(0) @binding(5) var<storage, read_write> found: array<vec2<u32>>; // [m][BEST + 1]: index, logit; then token, logit
const BEST = 32u;
const NONE = 0xffffffffu;
var<workgroup> offered: array<f32, 1024>;
var<workgroup> offered_at: array<u32, 1024>;
const WIDTH = 256u;

// The 32 largest are no smaller than the stretch of rank 31 by its largest, and they stand in stretches that rank no lower.
// So those stretches are read once, and what is large enough is ranked. False if that is too much for the buffer, or there are
// too few stretches.
var<workgroup> candidate: array<f32, 512>;
var<workgroup> candidate_at: array<u32, 512>;
var<workgroup> chosen: array<u32, BEST>;
var<workgroup> candidates: atomic<u32>;
var<workgroup> is_few: bool;

fn few_candidates(t: u32, row: u32, count: u32, stretches: u32) -> bool {
    if stretches < BEST { return false; }
    if t == 0u { atomicStore(&candidates, 0u); }
    for (var s = t; s < stretches; s += 256u) {
        var rank = 0u;
        for (var other = 0u; other < stretches; other++) {
            rank += u32(precedes(offered[other], offered_at[other], offered[s], offered_at[s]));
        }
        if rank < BEST { chosen[rank] = s; }
    }
    workgroupBarrier();
    let last_one = chosen[BEST - 1u];
    let least = offered[last_one];
    let least_at = offered_at[last_one];
    for (var n = 0u; n < BEST; n += 4u) {
        //each v
        let i_$v = 512u * chosen[n + $v / 2u] + 256u * ($v % 2u) + t;
        let x_$v = logits[row * dims.a.x + min(i_$v, count - 1u)];
        //end v
        //each v
        if i_$v < count && !precedes(least, least_at, x_$v, i_$v) {
            let to = atomicAdd(&candidates, 1u);
            if to < 512u { candidate[to] = x_$v; candidate_at[to] = i_$v; }
        }
        //end v
    }
    workgroupBarrier();
    if t == 0u { is_few = atomicLoad(&candidates) <= 512u; }
    let few = workgroupUniformLoad(&is_few);
    if !few { return false; }
    let all = atomicLoad(&candidates);
    for (var c = t; c < all; c += 256u) {
        var rank = 0u;
        for (var other = 0u; other < all; other++) {
            rank += u32(precedes(candidate[other], candidate_at[other], candidate[c], candidate_at[c]));
        }
        if rank < BEST { found[row * (BEST + 1u) + rank] = vec2<u32>(candidate_at[c], bitcast<u32>(candidate[c])); }
    }
    return true;
}

// Stretch after stretch: the one that gives its largest offers its next.
fn one_by_one(t: u32, row: u32, count: u32, stretches: u32) {
    for (var n = 0u; n < BEST; n++) {
        var top = LOWEST;
        var at = NONE;
        for (var s = t; s < stretches; s += 256u) {
            if precedes(offered[s], offered_at[s], top, at) { top = offered[s]; at = offered_at[s]; }
        }
        first_of_all(t, top, at);
        let logit = best[0];
        let index = place[0];
        workgroupBarrier();
        if t == 0u { found[row * (BEST + 1u) + n] = vec2<u32>(index, bitcast<u32>(logit)); }
        let stretch = min(index, count - 1u) / 512u;
        let last = min(512u * stretch + 512u, count);
        top = LOWEST;
        at = NONE;
        for (var i = 512u * stretch + t; i < last; i += 256u) {
            let x = logits[row * dims.a.x + i];
            if precedes(logit, index, x, i) && precedes(x, i, top, at) { top = x; at = i; }
        }
        first_of_all(t, top, at);
        if t == 0u { offered[stretch] = best[0]; offered_at[stretch] = place[0]; }
        workgroupBarrier();
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = wg.x;
    let count = select(run.flags / 2u, dims.a.x, run.flags < 2u);
    let stretches = (count + 511u) / 512u;
    for (var s = t; s < stretches; s += 256u) {
        let own = stats[row * dims.a.y + s];
        offered[s] = bitcast<f32>(own.x);
        offered_at[s] = own.z;
    }
    workgroupBarrier();
    if !few_candidates(t, row, count, stretches) {
        one_by_one(t, row, count, stretches);
    }
    if t == 0u {
        let token = tokens[run.token + row];
        let depth = run.rows[row].seen - run.base; // rows from the root to this one
        var own = 0.0;
        if depth > 1u && token < count {
            let at = depth - 2u;
            let eight = select(run.rows[row].low, run.rows[row].high, at >= 8u);
            own = logits[((eight >> (4u * (at % 8u))) & 15u) * dims.a.x + token];
        }
        found[row * (BEST + 1u) + BEST] = vec2<u32>(token, bitcast<u32>(own));
    }
}
