// Partial softmax of one row and query head over a segment of 128 positions; a segment's borders are absolute
// positions, so what a row sums and in what order follows from its position alone. Positions of the pass itself are
// found through the row's path, so a row of a tree sums as in a chain. Four lanes share the scores of a position and read
// neighbouring words of its key. One workgroup a head, row and segment.
// dims: a = (heads, kv_heads, head_dim, segments that fit into parts); b.x = positions that a row sees, its own
// included (0: all); c.x = cap of scores (0: none)
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;      // [m][heads][head_dim / 4], scaled
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;   // [positions][kv_heads][head_dim / 8]
@group(0) @binding(4) var<storage, read> cached: array<u32>;       // values: [positions][kv_heads][head_dim / 2]
@group(0) @binding(5) var<storage, read_write> parts: array<f32>;  // [m][heads][segments][max, total, head_dim sums]
const SEGMENT = 128u;
var<workgroup> query: array<vec4<f32>, 128>;
var<workgroup> quarter: array<f32, 512>; // [4][128]
var<workgroup> weight: array<f32, 128>;
var<workgroup> place: array<u32, 128>;
var<workgroup> tree: array<f32, 128>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let heads = dims.a.x; let hd = dims.a.z; let half = hd / 2u;
    let row = wg.y;
    let kv = wg.x / (heads / dims.a.y);
    let seen = seen_by(row);
    let start = wg.z * SEGMENT;
    let low = select(0u, seen - min(seen, dims.b.x), dims.b.x > 0u); // the first that the row sees
    if start >= seen || start + SEGMENT <= low { return; }
    for (var i = t; i < hd / 4u; i += 256u) { query[i] = q[(row * heads + wg.x) * (hd / 4u) + i]; }
    workgroupBarrier();
    let lane = t % 4u;
    for (var j = t / 4u; j < SEGMENT; j += 64u) {
        var sum = 0.0;
        // unseen positions weigh nothing, whatever stands where they are looked up
        let from_ = slot(row, clamp(start + j, low, seen - 1u));
        if lane == 0u { place[j] = from_; }
        if start + j < seen && start + j >= low {
            let at = (from_ * dims.a.y + kv) * (hd / 8u);
            for (var c = lane; c < hd / 8u; c += 4u) { sum = add_eight(sum, query[2u * c], query[2u * c + 1u], keys[at + c]); }
        }
        quarter[SEGMENT * lane + j] = sum;
    }
    workgroupBarrier();
    var score = -3.0e38;
    if t < SEGMENT {
        if start + t < seen && start + t >= low {
            let sum = (quarter[t] + quarter[2u * SEGMENT + t]) + (quarter[SEGMENT + t] + quarter[3u * SEGMENT + t]);
            score = capped(sum, dims.c.x);
        }
        tree[t] = score;
    }
    workgroupBarrier();
    for (var step = SEGMENT / 2u; step > 0u; step /= 2u) {
        if t < step { tree[t] = max(tree[t], tree[t + step]); }
        workgroupBarrier();
    }
    let most = tree[0];
    if t < SEGMENT { weight[t] = select(0.0, exp_fixed(score - most), start + t < seen && start + t >= low); }
    workgroupBarrier();
    let at = ((row * heads + wg.x) * dims.a.w + wg.z) * (hd + 2u);
    let from_ = max(low, start) - start;
    let count = min(SEGMENT, seen - start);
    for (var i = t; i < half; i += 256u) {
        var two = vec2<f32>(0.0, 0.0);
        var total = 0.0;
        for (var j = from_ / 16u * 16u; j < count; j += 16u) {
            //each v
            let v_$v = cached[(place[j + $v] * dims.a.y + kv) * half + i];
            //end v
            //each v
            let pair_$v = unpack2x16float(v_$v);
            let weight_$v = weight[j + $v];
            total += weight_$v;
            two.x += weight_$v * pair_$v.x;
            two.y += weight_$v * pair_$v.y;
            //end v
        }
        if i == 0u {
            parts[at] = most;
            parts[at + 1u] = total;
        }
        parts[at + 2u + 2u * i] = two.x;
        parts[at + 3u + 2u * i] = two.y;
    }
}
