// Joins the segments of one row and query head in order, each to those before it, multiplied by the sigmoid of their
// gates if there are any, as numbers and as codes. One workgroup a head and row; narrow heads share one.
// dims: a = (heads, kv_heads, head_dim, segments that fit into parts); b = (positions that a row sees, 0: all; 1 if
// there are gates; width of a row of them; where they begin in it)
@group(0) @binding(2) var<storage, read> parts: array<f32>;              // as in attend
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read_write> values: array<f32>;       // [m][heads][head_dim]
@group(0) @binding(5) var<storage, read_write> codes: array<u32>;        // [m][heads head_dim / 4]
@group(0) @binding(6) var<storage, read_write> scales: array<vec4<f32>>; // [m][heads head_dim / 32]
const WORKGROUP = 64u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let hd = dims.a.z;
    let together = max(1u, 32u / hd); // heads of a workgroup: whole blocks of 32 numbers
    let seen = seen_by(wg.y);
    let own = (seen + 127u) / 128u;
    let first = select(0u, (seen - min(seen, dims.b.x)) / 128u, dims.b.x > 0u);
    for (var h = wg.x * together; h < wg.x * together + together; h++) {
        let head = wg.y * dims.a.x + h;
        let at = head * dims.a.w * (hd + 2u);
        for (var i = t; i < hd; i += 64u) {
            var most = -3.0e38;
            var total = 0.0;
            var sum = 0.0;
            for (var s = first; s < own; s += 4u) {
                //each v
                let from_$v = at + min(s + $v, own - 1u) * (hd + 2u);
                let part_$v = vec3<f32>(parts[from_$v], parts[from_$v + 1u], parts[from_$v + 2u + i]);
                //end v
                //each v
                if s + $v < own {
                    let next = max(most, part_$v.x);
                    let before = exp_fixed(most - next);
                    let share = exp_fixed(part_$v.x - next);
                    total = total * before + part_$v.y * share;
                    sum = sum * before + part_$v.z * share;
                    most = next;
                }
                //end v
            }
            var value = sum / total;
            if dims.b.y == 1u {
                let gate = gates[wg.y * dims.b.z + dims.b.w + h * hd + i];
                value = value / (1.0 + exp_fixed(-gate));
            }
            values[head * hd + i] = value;
        }
    }
    storageBarrier();
    workgroupBarrier();
    let blocks = together * hd / 32u;
    let start = (wg.y * dims.a.x + wg.x * together) * hd / 32u;
    quantise_stored(t, start, blocks);
}
