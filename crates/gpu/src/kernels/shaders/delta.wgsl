// Gated DeltaNet, one row after the other (Yang et al., arXiv:2412.06464): the state decays, corrects itself towards the
// value under the key, and answers the query. The state in memory is that before `kept.x` rows that ran already: these
// run again, without an answer, then the rows of the pass. So rows are rolled back by running fewer of them again. The
// state is stored before the rows of the pass (kept.y = 1), after them (2), or not (0).
// Sixteen columns of a value head a workgroup, four lanes a column: a lane has every fourth row of the state.
// dims: a = (key heads, value heads, width of a key, width of a value); b = (positions of a ring, 1 if value heads of a
// key head are adjacent, 0, 0)
@group(0) @binding(2) var<storage, read> mixed: array<f32>;        // [ring][queries, keys, values]
@group(0) @binding(3) var<storage, read> rates: array<f32>;        // [ring][kept share of all, rate of all]
@group(0) @binding(4) var<storage, read_write> state: array<f32>;  // [value heads][width of a key][width of a value]
@group(0) @binding(5) var<storage, read_write> answers: array<f32>; // [m][value heads][width of a value]
const LANES = 4u;
const COLUMNS = 16u;
var<workgroup> query: array<f32, LANES * OWN>;
var<workgroup> key: array<f32, LANES * OWN>;
var<workgroup> lanes: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let keys = dims.a.x; let values = dims.a.y; let dk = dims.a.z; let dv = dims.a.w; let ring = dims.b.x;
    let channels = 2u * keys * dk + values * dv;
    let head = wg.x / (dv / COLUMNS);
    let column = (wg.x % (dv / COLUMNS)) * COLUMNS + t / LANES;
    let lane = t % LANES;
    let of_key = select(head % keys, head / (values / keys), dims.b.y == 1u);
    let again = run.kept.x;
    let start = run.base - again;
    let at = (head * dk + lane) * dv + column;
    var own: array<f32, OWN>;
    for (var n = 0u; n < OWN; n++) {
        own[n] = 0.0;
        if start > 0u { own[n] = state[at + n * LANES * dv]; }
    }
    for (var r = 0u; r < again + run.m; r++) {
        if r == again && run.kept.y == 1u {
            for (var n = 0u; n < OWN; n++) { state[at + n * LANES * dv] = own[n]; }
        }
        let here = (start + r) % ring;
        for (var i = t; i < dk; i += 64u) {
            query[i] = mixed[here * channels + of_key * dk + i];
            key[i] = mixed[here * channels + (keys + of_key) * dk + i];
        }
        workgroupBarrier();
        let keep = rates[here * 2u * values + head];
        let rate = rates[here * 2u * values + values + head];
        var known = 0.0;
        for (var n = 0u; n < OWN; n++) {
            own[n] = own[n] * keep;
            known += own[n] * key[n * LANES + lane];
        }
        lanes[t] = known;
        workgroupBarrier();
        let first = t - lane;
        known = ((lanes[first] + lanes[first + 1u]) + lanes[first + 2u]) + lanes[first + 3u];
        workgroupBarrier();
        let change = (mixed[here * channels + 2u * keys * dk + head * dv + column] - known) * rate;
        var answer = 0.0;
        for (var n = 0u; n < OWN; n++) {
            own[n] = own[n] + key[n * LANES + lane] * change;
            answer += own[n] * query[n * LANES + lane];
        }
        lanes[t] = answer;
        workgroupBarrier();
        if lane == 0u && r >= again {
            answers[((r - again) * values + head) * dv + column] =
                ((lanes[t] + lanes[t + 1u]) + lanes[t + 2u]) + lanes[t + 3u];
        }
        workgroupBarrier();
    }
    if run.kept.y == 2u || (run.kept.y == 1u && run.m == 0u) {
        for (var n = 0u; n < OWN; n++) { state[at + n * LANES * dv] = own[n]; }
    }
}
