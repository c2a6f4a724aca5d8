// 1 / sqrt(mean of squares + eps) of d numbers, from each invocation's sum of squares.
var<workgroup> squares: array<f32, WORKGROUP>;
fn inverse_size(t: u32, sum: f32, d: u32) -> f32 {
    squares[t] = sum;
    workgroupBarrier();
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        if t < step { squares[t] += squares[t + step]; }
        workgroupBarrier();
    }
    let all = squares[0];
    workgroupBarrier();
    return 1.0 / sqrt(all / f32(d) + dims.c.x);
}
