"""Runs subsampled.run over the settings and appends to subsampled.txt (already present rows are skipped).
Each row `sigma q N delta lower truth` is preceded by a `# note` line: err = estimated relative
error of truth; lower = relative distance of lower from truth; add = epsilon of the other order."""
import math, os, sys
from subsampled import run, Curve
OUT = "subsampled.txt"
REQUIRED = [(0.05, 1, 1, 1e-70), (0.04, 1, 1, 1e-35), (0.2, 1, 1, 1e-250), (1, 1e-12, 1, 1e-290),
    (0.6, 1e-6, 1e5, 1e-7), (5, 1e-6, 1e10, 1e-6), (0.05, 1e-9, 1, 1e-6),
    (0.5, 1e-6, 10, 1e-10), (0.5, 1e-9, 1e9, 1e-14), (0.4, 1e-4, 1e4, 1e-12)]
CLOSED = [(1, 1, 100, 1e-5), (300, 1, 1e6, 1e-10), (300, 1, 1, 1e-6), (10, 1, 1e4, 1e-30), (50, 1, 10, 1e-100),
    (0.5, 1, 2, 1e-3), (1, 0.5, 1, 1e-6), (0.5, 0.1, 1, 1e-8), (2, 0.01, 1, 1e-10), (0.3, 1e-3, 1, 1e-12),
    (0.1, 1e-5, 1, 1e-15), (0.5, 1e-8, 1, 1e-30), (0.05, 1e-9, 1, 1e-12), (0.8, 1e-4, 1, 1e-100), (30, 0.5, 1, 1e-9)]
LIGHT = [(1, 0.01, 2, 1e-6), (1, 0.01, 1000, 1e-6), (1.1, 0.004, 15000, 1e-5), (0.8, 0.01, 1e4, 1e-8),
    (2, 0.5, 2, 1e-5), (1, 0.5, 10, 1e-8), (20, 0.5, 1e4, 1e-10), (300, 0.5, 1e6, 1e-6), (300, 0.1, 1e3, 1e-6),
    (0.7, 0.1, 10, 1e-6), (0.3, 0.1, 2, 1e-10), (3, 0.1, 1e5, 1e-12), (10, 0.1, 1e4, 1e-3), (0.5, 0.1, 100, 1e-30),
    (2, 0.1, 100, 1e-100), (50, 0.01, 1e8, 1e-9), (5, 0.01, 1e6, 1e-20), (1, 0.001, 1e6, 1e-6), (4, 0.001, 1e8, 1e-10),
    (0.8, 0.001, 1e4, 1e-5), (1.5, 1e-4, 1e8, 1e-8), (10, 1e-4, 1e10, 1e-12), (2, 1e-5, 1e10, 1e-7), (100, 1e-5, 1e12, 1e-9),
    (5, 1e-6, 1e11, 1e-6), (50, 1e-6, 1e11, 1e-10), (20, 1e-6, 1e11, 1e-15), (10, 1e-6, 1e11, 1e-8), (2, 1e-6, 1e12, 1e-8), (1, 1e-6, 1e12, 1e-6), (30, 1e-6, 1e12, 1e-12),
    (0.6, 1e-9, 1e12, 1e-6), (1, 1e-9, 1e12, 1e-10), (1, 1e-7, 1e11, 1e-7), (1, 1e-8, 1e12, 1e-6), (2, 0.01, 1e5, 1e-100)]
HEAVY = [(0.5, 0.01, 10, 1e-8), (0.4, 1e-3, 1000, 1e-10), (0.3, 1e-3, 100, 1e-9), (0.5, 1e-4, 1e5, 1e-8), (0.3, 1e-4, 1000, 1e-14),
    (0.7, 1e-5, 1e6, 1e-16), (0.5, 1e-5, 1e4, 1e-10), (0.4, 1e-6, 1e6, 1e-12), (0.5, 1e-7, 1e7, 1e-8), (0.3, 1e-7, 1e7, 1e-16),
    (0.4, 1e-8, 1e8, 1e-10), (0.2, 1e-8, 1e7, 1e-12), (0.5, 1e-9, 1e12, 1e-8), (0.4, 1e-9, 1e10, 1e-12), (0.25, 1e-9, 1e9, 1e-11),
    (0.1, 1e-4, 10, 1e-6), (0.05, 1e-3, 10, 1e-5), (0.6, 1e-3, 2, 1e-30), (0.15, 1e-6, 1e5, 1e-8)]
EXTRA = [(1, 1e-9, 100, 1e-6), (2, 1e-7, 1e6, 1e-6), (100, 1e-3, 1e3, 1e-4), (0.45, 1e-9, 1e12, 1e-9), (0.6, 1e-9, 1e12, 1e-12),
    (0.2, 0.5, 1000, 1e-8), (0.1, 0.1, 10, 1e-6), (0.5, 1e-6, 1e6, 1e-30), (0.6, 1e-4, 1e4, 1e-16), (0.5, 1e-3, 100, 1e-3), (300, 1, 1e8, 1e-12)]

def calibrate(q, N, delta, eps, lo, hi):
    """sigma with delta_remove(eps) = delta, by secant on log delta in log sigma"""
    def g(ls):
        c = Curve(math.exp(ls), q, N, delta, alpha=0.5, target=0.1, nmax=60000, eps_hint=eps, lam_hint=CAL_LAM, eta=1e-9)
        return float((c.f(eps, c.tau, 6) / delta).log().mid())
    a, b = math.log(lo), math.log(hi); fa, fb = g(a), g(b)
    for _ in range(12):
        n = b - fb * (b - a) / (fb - fa)
        a, fa, b = b, fb, n; fb = g(b)
        if abs(fb) < 1e-9: break
    return math.exp(b)
CAL_LAM = 30.

def main():
    have = set()
    if os.path.exists(OUT):
        for l in open(OUT):
            if l[0] != "#": have.add(tuple(float(x) for x in l.split()[:4]))
    else: open(OUT, "w").write("# sigma q N delta lower truth   (see subsampled.py; a note precedes each row)\n")
    todo = REQUIRED + CLOSED + LIGHT
    cal = "calibrate"
    for s in todo + [cal] + HEAVY + EXTRA:
        pre = ""
        if s == cal:
            if any(h[1:] == (1e-5, 1e5, 1e-8) for h in have): continue
            s = (calibrate(1e-5, 1e5, 1e-8, 1.0, 0.45, 0.55), 1e-5, 1e5, 1e-8)
            pre = f"CALIBRATION q=1e-5 N=1e5 eps=1 delta=1e-8 -> sigma={s[0]!r}; "
        key = tuple(float(x) for x in s)
        if key in have: continue
        sg, q, N, d = key; N = int(N)
        try:
            r = run(sg, q, N, d)
            txt = f"# {pre}{r['note']}\n{sg!r} {q!r} {N} {d!r} {r['lower']!r} {r['truth']!r}\n"
        except Exception as e:
            txt = f"# FAILED {s}: {type(e).__name__} {e}\n"
        open(OUT, "a").write(txt); print(txt, end="", flush=True)

if __name__ == "__main__":
    main()
