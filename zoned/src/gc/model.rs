//! Write amplification in closed form, for a log in its steady state with infinitely many zones.
//!
//! `alpha` is `T / U`, all pages over user pages, and more than 1 (see the module's definition of over-provisioning).

/// First in, first out under uniform writes, zones of any size: the live share of the victim is
/// `x = exp(-alpha (1 - x))` (Desnoyers; Xiang and Kurkoski).
pub fn fifo(alpha: f64) -> f64 {
    // Besides 1 there is one root, below the point where the difference is largest.
    let top = 1.0 - alpha.ln() / alpha;
    of_live(bisect(0.0, top, |x| x - (-alpha * (1.0 - x)).exp()))
}

/// Greedy under uniform writes, `zone_pages` pages a zone: `alpha (1 - x) = H(n) - H(x n)` with the harmonic numbers
/// continued to real arguments (after Desnoyers' argument of one cycle).
pub fn greedy(alpha: f64, zone_pages: u32) -> f64 {
    let n = f64::from(zone_pages);
    let all = harmonic(n);
    of_live(bisect(0.0, 1.0 - 1e-6, |x| alpha * (1.0 - x) - (all - harmonic(x * n))))
}

/// First in, first out under a mix of classes, each `(share of the pages, share of the writes)`:
/// `A = sum of p / (1 - exp(-(p / r) alpha / A))`.
pub fn fifo_mixed(alpha: f64, classes: &[(f64, f64)]) -> f64 {
    bisect(1.0, 1e6, |a| {
        a - classes.iter().map(|(r, p)| p / (1.0 - (-(p / r) * alpha / a).exp())).sum::<f64>()
    })
}

fn of_live(x: f64) -> f64 {
    1.0 / (1.0 - x)
}

/// Where `f`, which is below 0 at `low` and above at `high`, is 0.
fn bisect(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if f(middle) < 0.0 { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The harmonic number of a real argument from 0 on: the digamma function of `z + 1` plus Euler's constant.
fn harmonic(z: f64) -> f64 {
    // H(z) = H(z + 1) - 1 / (z + 1), until the asymptotic series is exact to twelve digits.
    let (mut z, mut less) = (z, 0.0);
    while z < 16.0 {
        z += 1.0;
        less += 1.0 / z;
    }
    let inverse = 1.0 / (z * z);
    const EULER: f64 = 0.577_215_664_901_532_9;
    z.ln() + EULER + 0.5 / z - inverse / 12.0 + inverse * inverse / 120.0 - inverse.powi(3) / 252.0 - less
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.0075
    }

    #[test]
    fn harmonic_numbers_are_sums_of_inverses() {
        for n in [1u32, 2, 10, 64, 256] {
            let sum: f64 = (1..=n).map(|k| 1.0 / f64::from(k)).sum();
            assert!((harmonic(f64::from(n)) - sum).abs() < 1e-9, "{n}");
        }
        assert!(harmonic(0.0).abs() < 1e-9);
        // H(1/2) = 2 - 2 ln 2.
        assert!((harmonic(0.5) - (2.0 - 2.0 * 2f64.ln())).abs() < 1e-9);
    }

    /// The published values of the formulas.
    #[test]
    fn formulas_give_the_published_values() {
        let rows = [
            (1.07, 7.82, 7.00, 7.60),
            (1.10, 5.68, 5.24, 5.56),
            (1.15, 4.02, 3.80, 3.96),
            (1.20, 3.19, 3.05, 3.15),
            (1.25, 2.69, 2.60, 2.67),
            (1.28, 2.48, 2.40, 2.46),
            (1.50, 1.72, 1.68, 1.71),
        ];
        for (alpha, first, small, large) in rows {
            assert!(near(fifo(alpha), first), "{alpha} {}", fifo(alpha));
            assert!(near(greedy(alpha, 64), small), "{alpha} {}", greedy(alpha, 64));
            assert!(near(greedy(alpha, 256), large), "{alpha} {}", greedy(alpha, 256));
        }
        for (n, expected) in [(16, 5.33), (32, 6.34), (64, 7.00), (128, 7.39), (512, 7.71), (1024, 7.76)] {
            assert!(near(greedy(1.07, n), expected), "{n} {}", greedy(1.07, n));
        }
        for (alpha, expected) in [(1.07, 8.87), (1.10, 6.68), (1.15, 4.96), (1.28, 3.30), (1.50, 2.38)] {
            let mixed = fifo_mixed(alpha, &[(0.1, 0.9), (0.9, 0.1)]);
            assert!(near(mixed, expected), "{alpha} {mixed}");
        }
    }

    #[test]
    fn a_mix_of_one_class_is_uniform() {
        for alpha in [1.07, 1.28, 1.5] {
            assert!((fifo_mixed(alpha, &[(1.0, 1.0)]) - fifo(alpha)).abs() < 1e-6);
        }
    }
}
