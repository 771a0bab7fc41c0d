"""Reference values for Gaussian differential privacy (GDP).

    delta(eps; mu) = Phi(-a) - e^eps Phi(-b),   a = eps/mu - mu/2,  b = eps/mu + mu/2.

gdp_extremes.txt : mu delta eps    eps = smallest eps >= 0 with delta(eps; mu) <= delta
gdp_inverse.txt  : eps delta mu    mu  = largest mu with delta(eps; mu) <= delta

delta decreases strictly in eps (d/d eps = -e^eps Phi(-b)) and increases strictly in mu
(d/d mu = phi(a)), so the answers are the roots of log delta(eps; mu) = log delta, or
eps = 0 exactly when delta(0; mu) = erf(mu/sqrt 8) <= delta.  Everything is mpmath at 170
digits: the two terms cancel to a relative size >= mu/40 >= 1e-14 and eps <= 1e18 costs 18
digits in e^eps, so > 130 digits survive.  A root is found by bisection, then Newton on the
logarithm, and VERIFIED by substitution: delta(x(1 -/+ 1e-45)) must bracket delta.
mu, eps, delta are f64 (repr) and taken as exact; results are rounded to 25 digits.
When delta >= 1 - 1e-12 and so on, delta is still the exact f64.
"""
from mpmath import mp, mpf, erf, erfc, exp, log, sqrt, pi, nstr
mp.dps = 170
S2 = sqrt(mpf(2))
TINY = mpf(10) ** -45
DELTAS = [1e-300, 1e-250, 1e-200, 1e-100, 1e-70, 1e-50, 1e-35, 1e-20, 1e-15, 1e-12, 1e-10,
          1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999,
          1 - 1e-6, 1 - 1e-9, 1 - 1e-12]
MUS = sorted({float(f"1e{k}") for k in range(-12, 10)} | {float(f"3e{k}") for k in range(-3, 8)} |
             {0.5, 0.7, 1.5, 2.0, 2.5, 4.0, 5.0, 7.0, 8.0, 12.0, 15.0, 20.0} |
             {80.0, 100.0, 120.0, 500.0, 1066.0, 2000.0, 10666.0})
EPSS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4, 3e6, 1e9, 1e15]

def Q(x):                      # upper tail of the standard normal
    return erfc(x / S2) / 2

def delta(eps, mu):
    if not eps:                # no digits to lose for mu down to 1e-300
        return erf(mu / sqrt(mpf(8)))
    return Q(eps / mu - mu / 2) - exp(eps) * Q(eps / mu + mu / 2)

def solve(f, df, lo, hi, target):
    """root of f = target on [lo, hi], f monotone; df = f'. Bisection, then Newton on log f."""
    up = f(hi) > f(lo)
    for _ in range(24):        # geometric while the bracket is wide, else arithmetic
        m = sqrt(lo * hi) if hi > 4 * lo else (lo + hi) / 2
        if (f(m) < target) == up: lo = m
        else: hi = m
    x, last = (lo + hi) / 2, None
    lt = log(target)
    for _ in range(200):
        fx = f(x)
        if (fx < target) == up: lo = x
        else: hi = x
        new = x - (log(fx) - lt) * fx / df(x)
        if not lo <= new <= hi: new = (lo + hi) / 2
        step = abs(new - x)
        x = new
        if step < x * mpf(10) ** -60: break
    else:
        raise ArithmeticError("no convergence")
    a, b = f(x * (1 - TINY)), f(x * (1 + TINY))
    assert (a < target < b) if up else (a > target > b), "substitution failed"
    return x

def epsilon(mu, d):
    mu, d = mpf(mu), mpf(d)
    if delta(mpf(0), mu) <= d: return mpf(0)
    hi = mu * (mu / 2 + 40)                      # Q(40) < 1e-300
    assert delta(hi, mu) < d
    return solve(lambda e: delta(e, mu), lambda e: -exp(e) * Q(e / mu + mu / 2),
                 hi * mpf(10) ** -40, hi, d)

def largest_mu(eps, d):
    eps, d = mpf(eps), mpf(d)
    hi = 2 * sqrt(2 * eps) + 100
    lo = hi * mpf(10) ** -305
    if eps: lo = eps / (40 + sqrt(eps) + eps)    # then a >= 39, delta < 1e-300
    assert delta(eps, lo) < d < delta(eps, hi)
    return solve(lambda m: delta(eps, m),
                 lambda m: exp(-(eps / m - m / 2) ** 2 / 2) / sqrt(2 * pi), lo, hi, d)

def write(path, title, givens, answer):
    with open(path, "w") as f:
        f.write(f"# {title}; 25 digits)\n")
        for given in givens:
            for d in DELTAS:
                f.write(f"{given!r} {d!r} {nstr(answer(given, d), 25)}\n")
            f.flush()

def main():
    write("gdp_extremes.txt", "mu delta epsilon   (smallest epsilon >= 0 with delta(epsilon; mu) <= delta", MUS, epsilon)
    write("gdp_inverse.txt", "epsilon delta mu   (largest mu with delta(epsilon; mu) <= delta", EPSS, largest_mu)

if __name__ == "__main__":
    main()
