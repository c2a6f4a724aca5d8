// Attention of eight rows of a prompt and one query head over all that they see, as numbers and as codes: what attend and
// join compute, bit for bit, in one launch. Keys and values are read once for the eight rows. An invocation scores one
// position of a segment for four rows, then sums two values of a head for four rows. One workgroup a head and eight rows.
// dims: as in attend and join
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;            // [m][heads][head_dim / 4], scaled
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;         // [positions][kv_heads][head_dim / 8]
@group(0) @binding(4) var<storage, read> cached: array<u32>;             // values: [positions][kv_heads][head_dim / 2]
@group(0) @binding(5) var<storage, read> gates: array<f32>;
@group(0) @binding(6) var<storage, read_write> values: array<f32>;       // [m][heads][head_dim]
@group(0) @binding(7) var<storage, read_write> codes: array<u32>;        // [m][heads head_dim / 4]
@group(0) @binding(8) var<storage, read_write> scales: array<vec4<f32>>; // [m][heads head_dim / 32]
const SEGMENT = 128u;
const WORKGROUP = 256u;
var<workgroup> query: array<vec4<f32>, 512>;  // [8][64]
var<workgroup> weight: array<vec4<f32>, 256>; // [2][128]: of four rows each
var<workgroup> top: array<vec4<f32>, 256>;

fn exp_four(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(exp_fixed(x.x), exp_fixed(x.y), exp_fixed(x.z), exp_fixed(x.w)); }

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let heads = dims.a.x; let hd = dims.a.z; let half = hd / 2u; let eights = hd / 8u; let fours = hd / 4u;
    let kv = wg.x / (heads / dims.a.y);
    let first = wg.y * 8u;
    for (var i = t; i < 8u * fours; i += 256u) {
        let row = min(first + i / fours, run.m - 1u);
        query[i / fours * 64u + i % fours] = q[(row * heads + wg.x) * fours + i % fours];
    }
    // for scores: a position and four rows
    let j = t % SEGMENT;
    let four = t / SEGMENT;
    // what these rows see: positions low … seen − 1
    let seen = vec4<u32>(run.base + first + 4u * four + 1u) + vec4<u32>(0u, 1u, 2u, 3u);
    let low = select(vec4<u32>(0u), seen - min(seen, vec4<u32>(dims.b.x)), dims.b.x > 0u);
    // for values: two of a head, and four rows
    let i = t % half;
    let own = t / half;
    var most = vec4<f32>(-3.0e38);
    var total = vec4<f32>();
    //each r
    var sum_$r = vec2<f32>();
    //end r
    let end = min(run.base + first + 8u, run.base + run.m);
    let begin = select(0u, run.base + first + 1u - min(run.base + first + 1u, dims.b.x), dims.b.x > 0u) / SEGMENT * SEGMENT;
    workgroupBarrier();
    for (var start = begin; start < end; start += SEGMENT) {
        let p = start + j;
        let sees = vec4<u32>(p) < seen & vec4<u32>(p) >= low;
        var score = vec4<f32>(-3.0e38);
        if p < end {
            //each r
            var part_$r = vec4<f32>();
            //end r
            let at = (p * dims.a.y + kv) * eights;
            let from_ = 256u * four;
            for (var c = 0u; c < eights; c += 4u) {
                //each k
                let key_$k = keys[at + c + $k];
                //each r
                part_$r[$k] = add_eight(part_$r[$k], query[from_ + 64u * $r + 2u * (c + $k)], query[from_ + 64u * $r + 2u * (c + $k) + 1u], key_$k);
                //end r
                //end k
            }
            //each r
            score[$r] = capped((part_$r.x + part_$r.z) + (part_$r.y + part_$r.w), dims.c.x);
            //end r
            score = select(vec4<f32>(-3.0e38), score, sees);
        }
        top[t] = score;
        workgroupBarrier();
        for (var step = SEGMENT / 2u; step > 0u; step /= 2u) {
            if j < step { top[t] = max(top[t], top[t + step]); }
            workgroupBarrier();
        }
        weight[t] = select(vec4<f32>(), exp_four(score - top[SEGMENT * four]), sees);
        workgroupBarrier();
        if own < 2u {
            let count = min(SEGMENT, end - start);
            var here = vec4<f32>();
            //each r
            var two_$r = vec2<f32>();
            //end r
            for (var n = 0u; n < count; n += 8u) {
                //each v
                let v_$v = cached[((start + min(n + $v, count - 1u)) * dims.a.y + kv) * half + i];
                //end v
                //each v
                let pair_$v = unpack2x16float(v_$v);
                let w_$v = weight[SEGMENT * own + n + $v]; // nothing after the last position
                here += w_$v;
                //each r
                two_$r.x += w_$v[$r] * pair_$v.x;
                two_$r.y += w_$v[$r] * pair_$v.y;
                //end r
                //end v
            }
            let largest = top[SEGMENT * own];
            let next = max(most, largest);
            let before = exp_four(most - next);
            let share = exp_four(largest - next);
            total = total * before + here * share;
            //each r
            sum_$r = sum_$r * before[$r] + two_$r * share[$r];
            //end r
            most = next;
        }
        workgroupBarrier();
    }
    if own < 2u {
        //each r
        let row_$r = first + 4u * own + $r;
        if row_$r < run.m {
            var value = sum_$r / total[$r];
            if dims.b.y == 1u {
                let gate = row_$r * dims.b.z + dims.b.w + wg.x * hd + 2u * i;
                value.x = value.x / (1.0 + exp_fixed(-gates[gate]));
                value.y = value.y / (1.0 + exp_fixed(-gates[gate + 1u]));
            }
            let to = (row_$r * heads + wg.x) * hd + 2u * i;
            values[to] = value.x;
            values[to + 1u] = value.y;
        }
        //end r
    }
    storageBarrier();
    workgroupBarrier();
    let all = 8u * hd / 32u;
    for (var start = 0u; start < all; start += BLOCKS_OF_WORKGROUP) {
        let b = min(start + t / 8u, all - 1u);
        let row = first + b / (hd / 32u);
        let block = (min(row, run.m - 1u) * heads + wg.x) * (hd / 32u) + b % (hd / 32u);
        let at = 32u * block + 4u * (t % 8u);
        let x = vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
        quantise(t, block, start + t / 8u < all && row < run.m, x);
    }
}
