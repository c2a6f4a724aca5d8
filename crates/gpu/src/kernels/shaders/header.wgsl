// Common to all kernels. A pass runs up to 16 rows, or more of a prompt, which follow each other; what it is lies in a
// slot of a uniform buffer, so that passes can be recorded one after the other.
struct Row {
    position: u32, // rotary position
    seen: u32,     // positions that the row sees, itself included
    low: u32,      // rows of the pass from the root to this one, itself included, four bits each: the first eight
    high: u32,     // and the last eight
}
struct Pass {
    m: u32,        // rows
    base: u32,     // positions in the cache before the pass
    token: u32,    // where the rows' tokens begin
    flags: u32,    // 1: the embedding of row 0 is zero; the rest is twice the logits of a row that count, 0 for all
    rows: array<Row, 16>,
    kept: vec4<u32>, // rows that recurrent layers run again; 1: their state is stored before the rows, 2: after them
}
struct Dims { a: vec4<u32>, b: vec4<u32>, c: vec4<f32> } // what they are is said in each kernel
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<uniform> run: Pass;

fn position_of(row: u32) -> u32 { return select(run.rows[min(row, 15u)].position, run.rows[0].position + row, run.m > 16u); }
fn seen_by(row: u32) -> u32 { return select(run.rows[min(row, 15u)].seen, run.base + row + 1u, run.m > 16u); }
// Where position `p` of what the row sees lies in the cache.
fn slot(row: u32, p: u32) -> u32 {
    if p < run.base || run.m > 16u { return p; }
    let at = p - run.base;
    let word = select(run.rows[row].low, run.rows[row].high, at >= 8u);
    return run.base + ((word >> (4u * (at % 8u))) & 15u);
}
// cap · tanh(x / cap); x itself without a cap.
fn capped(x: f32, cap: f32) -> f32 {
    if cap == 0.0 { return x; }
    return cap * (1.0 - 2.0 / (1.0 + exp_fixed(2.0 * (x / cap))));
}

// e^x by Cephes' expf: the same operations on every device. x is cut to -87 … 88.
fn exp_fixed(x: f32) -> f32 {
    let y = clamp(x, -87.0, 88.0);
    let n = floor(y * 1.44269504 + 0.5);
    let r = (y - n * 0.693359375) + n * 0.000212194440;
    var p = 0.000198756915;
    p = p * r + 0.00139819995;
    p = p * r + 0.00833345205;
    p = p * r + 0.0416657962;
    p = p * r + 0.166666657;
    p = p * r + 0.5;
    return (p * (r * r) + (r + 1.0)) * bitcast<f32>(u32(i32(n) + 127) << 23u);
}
