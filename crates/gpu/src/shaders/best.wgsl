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
