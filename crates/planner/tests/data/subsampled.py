"""Oracle for the Poisson-subsampled Gaussian mechanism (noise sigma, sampling rate q, N steps,
add/remove one).  Output subsampled.txt:  sigma q N delta lower truth

MATHEMATICS.  y(x) = q (e^{(2x-1)/(2 sigma^2)} - 1), x ~ N(0, sigma^2); 1+y is the likelihood ratio
of one step.  One-step transforms: remove M(s) = E (1+y)^{s+1}; add M(s) = E (1+y)^{-s}.
f(eps) := delta(eps) has the two-sided transform  F(s) = int f(e) e^{s e} de = M(s)^N / (s(s+1)),
Re s > 0, so f(eps) = (1/2 pi i) int_{theta - i oo}^{theta + i oo} e^{-eps s} F(s) ds.

SMOOTHING.  Composing with one extra Gaussian mechanism of parameter tau multiplies F by
e^{z}, z = tau^2 s(s+1)/2, i.e. a Gaussian window in t = Im s; call the result f_tau.
 * truth: window e^z sum_{k<=m} (-z)^k/k!  (removes the smoothing to order tau^(2m+2)); the values for
   m = 6, m = 4 and of a second run with other theta, tau, step, precision and x-contour must agree.
 * lower: uses m = 0, for which smoothing is a genuine mechanism, so that things are inequalities.

WHY `lower` IS A LOWER BOUND.  With r = e^eps, f is decreasing and convex in r, f <= f_tau
(composition only helps the adversary) and f_tau(eps) = E f(eps - G), G ~ N(tau^2/2, tau^2).
In that expectation bound f from above by the piecewise linear function (in r) with value f(eps) at eps and
f_tau at the other nodes eps + j k tau (convexity), constant right of the last node, 1 left of the first.
This gives f_tau(eps) <= w0 f(eps) + (known terms), hence a lower bound for f(eps), with second
order error in tau; `lower` is an eps where that lower bound is still >= delta.  The errors of the
computed f_tau, all included (in the direction that hurts):
 * trapezoidal rule in t, step h, period p = 2 pi/h: the exact aliasing is
   sum_{k != 0} e^{theta k p} f_tau(eps + k p) >= 0; bounded by f <= 1 (k < 0) and by Chernoff (k > 0);
 * truncation at T: |M(theta+it)| <= M(theta) and |e^z| <= e^{tau^2(theta(theta+1) - t^2)/2};
 * rounding: ball arithmetic (FLINT/Arb) for the sums (the aliasing/truncation bounds themselves are f64);
 * M(s): trapezoidal rule in x on the line Im x = a = phi sigma^2 (remove, t > 0) or -a (add), on which
   (1+y)^{it} decays instead of oscillating; the integrand is analytic for |Im x| < pi sigma^2, so the
   error is about e^{-2 pi a/h} relative, chosen below 2^-prec, where 2^-prec < delta 1e-20/N.
   This one is an estimate, not a ball; checks.py M compares with rigorous integration (acb.integral).
The direction used for truth/lower is remove; the maximum over both orders is >= it, so `lower` stays a
lower bound whatever add does, and truth is the maximum because delta_add(truth) < delta is checked.
HEAVY TAILS (few big jumps): theta is limited by jumps far too rare to matter.  There M is restricted to
x <= X with N P(x > X) <= eta delta (eta = 3e-10 for truth, 1e-6 for lower): restricting both measures to an event lowers every
hockey-stick divergence, and by at most the lost mass of P, so `lower` is still a lower bound and
truth is low by at most eta/(lambda eps) relative (lambda = -d log delta/d eps).
N = 1 and q = 1 have closed forms and are done in mpmath (see closed_form).
"""
import math, sys, time
import numpy as np
from scipy.stats import norm
from flint import acb, arb, acb_mat, ctx
import mpmath
from gdp_extremes import delta as gdp_delta, epsilon as gdp_epsilon

GL = {}
def gauss(m):                                  # Gauss-Legendre on [-1, 1], cached
    if (m, ctx.prec) not in GL:
        GL[m, ctx.prec] = [arb.legendre_p_root(m, k, weight=True) for k in range(m)]
    return GL[m, ctx.prec]

def cut(sigma, q, N, mass):                    # X with N P(x > X) <= mass under the mixture P
    def lg(X): return math.log(N) + np.logaddexp(math.log1p(-q) + norm.logsf(X / sigma), math.log(q) + norm.logsf((X - 1) / sigma))
    lo, hi = 0., 1 + 60 * sigma
    for _ in range(60):
        m = (lo + hi) / 2
        if lg(m) > math.log(mass): lo = m
        else: hi = m
    return hi * (1 + 1e-9)

class Step:
    """One-step transform M of one direction, by the trapezoidal rule in x, or (X given) restricted
    to x <= X, by Gauss-Legendre panels: along Im x = a up to X + ia, then graded panels down to X."""
    def __init__(self, sigma, q, add, prec, phimax=None, X=None):
        self.sigma, self.q, self.add, self.prec, self.X = sigma, q, add, prec, X
        self.tmax = 1.
        ctx.prec = prec
        self.D = prec * math.log(2)
        phi = min(phimax or (0.75 if add else 1.5), math.sqrt(self.D / 8) / sigma)
        self.a = sigma * sigma * phi

    def nodes(self, theta, shifted):
        """[(V, l)]: M(theta + i t) = sum V exp(i t c l), c = 1 (remove) or -1 (add)."""
        sg, q, D = self.sigma, self.q, self.D
        s2 = sg * sg
        e = -theta if self.add else theta + 1
        if self.X is not None:
            sig, Q, out = arb(sg), arb(q), []
            for x, dx in self.path(shifted):
                l = (Q * ((2 * x - 1) / (2 * sig * sig)).exp() + (1 - Q)).log()
                out.append((dx / (sig * (2 * arb.pi()).sqrt()) * (-x * x / (2 * sig * sig) + l * arb(e)).exp(), l))
            big = max(float(abs(w).abs_upper()) for w, _ in out)
            return [(w, l) for w, l in out if float(abs(w).abs_upper()) > big * 2.0 ** (-self.prec - 12)]
        d = 0.97 * self.a if shifted else min(2.4 * s2 * (0.5 if self.add else 1), sg * math.sqrt(D))
        h = 2 * math.pi * d / (D + (2 * d) ** 2 / (2 * s2) + 5)
        top = max(e, 0) + math.sqrt(max(e, 0) ** 2 + 2 * s2 * D) + 10 * h
        low = -sg * math.sqrt(2 * D) - 10 * h
        k = np.arange(math.floor(low / h), math.ceil(top / h) + 1)
        v = (2 * k * h - 1) / (2 * s2)
        g = -(k * h) ** 2 / (2 * s2) + e * np.logaddexp(math.log1p(-q), math.log(q) + v)
        k = k[g > g.max() - D - 8]             # drop what is below 2^-prec
        sh = arb(h); sig = arb(sg); Q = arb(q)
        a = arb(-self.a if self.add else self.a) if shifted else arb(0)
        out = []
        for j in range(int(k[0]), int(k[-1]) + 1):
            x = acb(sh * j, a)
            l = (Q * ((2 * x - 1) / (2 * sig * sig)).exp() + (1 - Q)).log()
            w = sh / (sig * (2 * arb.pi()).sqrt()) * (-x * x / (2 * sig * sig) + l * arb(e)).exp()
            out.append((w, l))
        return out

    def path(self, shifted):
        """[(x, dx)]: Gauss-Legendre points of the path ending at X"""
        s2, D, X = self.sigma ** 2, self.D, self.X
        d = self.a if shifted else min(2.4 * s2 * (0.5 if self.add else 1), self.sigma * math.sqrt(D))
        low = -self.sigma * math.sqrt(2 * D)
        np_ = max(1, math.ceil((X - low) / (3 * d)))
        m = int((D + 2 * d * d / s2 + 5) / 1.19) + 2
        a = arb(-self.a if self.add else self.a) if shifted else arb(0)
        out = []
        def panel(x0, x1, m):
            for z, w in gauss(m): out.append(((x0 + x1) / 2 + (x1 - x0) * z / 2, (x1 - x0) * w / 2))
        grid = [arb(low) + (arb(X) - arb(low)) * k / np_ for k in range(np_ + 1)]
        for k in range(np_): panel(acb(grid[k], a), acb(grid[k + 1], a), m)
        if shifted:
            m = int((D + 2 * d * d / s2 + 5) / 2.19) + 4
            b = a
            while float(abs(b.mid())) * self.tmax > s2: # dL/dx <= 1/sigma^2
                panel(acb(arb(X), b), acb(arb(X), b / 4), m); b = b / 4
            panel(acb(arb(X), b), acb(arb(X), 0), m)
        return out

    def logM(self, theta):                     # log M at a real point
        return sum((w.real for w, _ in self.nodes(theta, False)), arb(0)).log()

def lnc(t): return t * math.log(t) - (1 + t) * math.log1p(t)   # delta <= exp(K - t eps + lnc(t))

class Curve:
    def __init__(self, sigma, q, N, delta, add=False, alpha=0.6, target=5e-3, nmax=250000,
                 extra=0, phimax=None, eps_hint=None, lam_hint=None, eta=None, tol=1e-13, skip_above=1e99, verbose=False):
        self.N, self.delta = int(N), delta
        L = math.log(1 / delta)
        prec = int((L + math.log(1 / tol)) / math.log(2) + math.log2(N)) + 50 + extra
        X = None if eta is None else cut(sigma, q, N, eta * delta)
        self.step = st = Step(sigma, q, add, prec, phimax, X)
        self.Kc = {}
        # theta*: best Chernoff bound
        def obj(t): return (self.K(t) + lnc(t) + L) / t
        t, best = 1e-3, None
        while t < 1e16:
            if self.K(t) > 3 * L + 50: break
            o = obj(t)
            if best is None or o < best[0]: best = (o, t)
            elif o > 3 * abs(best[0]) + 1e-300 and t > 30 * best[1]: break
            t *= 2
        lo, hi = math.log(best[1] / 2), math.log(best[1] * 2)
        for _ in range(14):
            m1, m2 = lo + .382 * (hi - lo), lo + .618 * (hi - lo)
            if obj(math.exp(m1)) < obj(math.exp(m2)): hi = m2
            else: lo = m1
        ts = math.exp((lo + hi) / 2)
        self.eps_chernoff = obj(ts)
        self.ts = ts
        self.theta = th = alpha * ts
        eps = eps_hint if eps_hint is not None else max(self.eps_chernoff, 0)
        # period
        need = L - math.log(tol)
        p = need / th
        while True:
            pos = self.log_tail(max(eps * .8, 0) + p) + th * p
            if pos < -need: break
            p *= 1.05
        self.p = p
        self.h = arb(2) * arb.pi() / arb(p)
        # window: X = tau T
        base = self.K(th) - th * eps * .8 + need - math.log(min(th, 1)) + 5
        X = 10.
        for _ in range(50): X = math.sqrt(2 * max(base + 6 * math.log(X * X / 2) - math.log(720), 20))
        lam = lam_hint or ts
        self.tau = tau = target / lam
        n = X / tau * p / (2 * math.pi)
        n = max(n, 2000)
        self.wanted = n
        if n > nmax: n = nmax
        self.n = n = int(n)
        self.T = n * 2 * math.pi / p
        self.tau = X / self.T
        self.lam_hint = lam
        st.tmax = self.T
        if self.wanted <= skip_above: self.compute()
        else: self.nu = 0
        if verbose:
            print(f"   prec={prec} theta*={ts:.4g} theta={th:.4g} eps_c={self.eps_chernoff:.6g} p={p:.4g} tau={self.tau:.3g} n={n} nu={self.nu} X={X:.3g}", flush=True)

    def K(self, t):
        if t not in self.Kc:
            self.Kc[t] = float((self.step.logM(t) * self.N).mid())
        return self.Kc[t]

    def log_tail(self, e, tau=0.):             # Chernoff: log f_tau(e) <= this
        return min(k + tau * tau * t * (t + 1) / 2 - t * e + lnc(t) for t, k in self.Kc.items())

    def compute(self):
        st, n, h = self.step, self.n, self.h
        c = -1 if st.add else 1
        nd = st.nodes(self.theta, True)
        self.nu = len(nd)
        K1 = self.K1 = int(math.sqrt(n)) + 1
        def powers(l, k):                      # exp(i k h c l): no long recurrences (balls would grow)
            return (l * acb(0, h * (c * k))).exp()
        B = []
        for k in range(K1):
            if k % 16 == 0: base = [powers(l, k) for _, l in nd]; B.append(base)
            elif k < 16: B.append([powers(l, k) for _, l in nd])
            else: B.append([x * y for x, y in zip(base, B[k % 16])])
        Bt = acb_mat(B).transpose()
        self.s, self.MN = [], []
        k = r = 0
        th = arb(self.theta)
        self.maxrad = 0.
        while k <= n:
            rows = []
            for _ in range(40):
                if k + len(rows) * K1 > n: break
                rows.append([w * powers(l, K1 * r) for w, l in nd])
                r += 1
            C = acb_mat(rows) * Bt
            for i in range(len(rows)):
                for j in range(K1):
                    M = C[i, j]
                    # at large t the ball may contain 0: then |M|^N is negligible or bounded by its magnitude
                    if M.contains(0):
                        b = M.abs_upper() ** self.N
                        v = acb(arb(0, b), arb(0, b))
                    else: v = (M.log() * self.N).exp()
                    self.MN.append(v)
                    k += 1
        self.MN = self.MN[:n + 1]
        self.s = [acb(th, h * k) for k in range(n + 1)]
        self.G = [m / (s * (s + 1)) for m, s in zip(self.MN, self.s)]
        self.polys = {}

    def window(self, tau, m):
        key = (tau, m)
        if key not in self.polys:
            t2 = arb(tau) ** 2 / 2
            cs = []
            for g, s in zip(self.G, self.s):
                z = t2 * s * (s + 1)
                if m == 0: w = z.exp()
                else:
                    a = acb(1); b = acb(1)
                    for k in range(1, m + 1):
                        a = a * (-z) / k; b = b + a
                    w = z.exp() * b
                cs.append(g * w)
            cs[0] = cs[0] / 2
            K1 = self.K1
            cs += [acb(0)] * (-len(cs) % K1)
            ds = [-x * s for x, s in zip(cs, self.s)] + [acb(0)] * (-len(self.s) % K1)
            self.polys[key] = (acb_mat(len(cs) // K1, K1, cs), acb_mat(len(cs) // K1, K1, ds))
        return self.polys[key]

    def f(self, eps, tau, m, deriv=False):     # arb ball for the trapezoidal sum
        P, D = self.window(tau, m)
        eps = arb(eps) if not isinstance(eps, arb) else eps
        he = -self.h * eps
        cols = acb_mat(self.K1, 1, [acb(0, he * k).exp() for k in range(self.K1)])
        rows = acb_mat(1, P.nrows(), [acb(0, he * (k * self.K1)).exp() for k in range(P.nrows())])
        sc = self.h / arb.pi() * (-arb(self.theta) * eps).exp()
        v = (rows * (P * cols))[0, 0].real * sc
        return (v, (rows * (D * cols))[0, 0].real * sc) if deriv else v

    def solve(self, tau, m):
        """eps with f = delta (float, Newton on log f, started by bisection)."""
        ld = math.log(self.delta)
        f0 = self.f(0., tau, m)
        if float(f0.mid()) <= self.delta: return 0.0, float("nan")
        lo, hi = 0., max(self.eps_chernoff, 1e-300) * 1.01
        x = hi * .5
        for it in range(200):
            v, d = self.f(x, tau, m, True)
            if not v > 0:
                hi = x; new = (lo + hi) / 2
            else:
                lv = float(v.log().mid()); lam = float((d / v).mid())
                if lv > ld: lo = x
                else: hi = x
                new = x - (lv - ld) / lam
                if not lo < new < hi: new = (lo + hi) / 2
                if abs(new - x) < 1e-13 * abs(x): return new, -lam
            x = new
        return x, -lam

    def f_err(self, eps, tau):
        """bounds for m = 0: (aliasing <=, truncation <=), from the docstring."""
        th, p, T = self.theta, self.p, self.T
        neg = math.exp(-th * p) / (1 - math.exp(-th * p))
        pos = sum(math.exp(min(self.log_tail(eps + k * p, tau) + th * k * p, 700)) for k in range(1, 60))
        h = float(self.h.mid())
        lt = self.K(th) - th * eps + tau * tau * (th * (th + 1) - T * T) / 2
        trunc = math.exp(lt) / math.pi * (h / T ** 2 + 1 / T) * 1.0001
        return (neg + pos) * 1.0001, trunc

    def f_lower(self, eps, k=1.7):
        """rigorous lower bound on f(eps) (chord argument in the docstring), nodes eps + j k tau"""
        t = arb(self.tau); kt = arb(k) * t; e0 = arb(eps)
        Phi = lambda x: (-x / arb(2).sqrt()).erfc() / 2
        def P(a, b, c):                        # P(a < -G < b), G ~ N(c tau^2/2, tau^2)
            return Phi((b + c * t * t / 2) / t) - Phi((a + c * t * t / 2) / t)
        jl = int(math.sqrt(2 * (math.log(1 / self.delta) + 25)) / k) + 1
        jr = int(7 / k) + 1
        w = {j: arb(0) for j in range(-jl, jr + 1)}
        for j in range(-jl, jr):               # e^{-G} between E^j and E^{j+1}, linear in r = e^{-G}
            p, p1 = P(j * kt, (j + 1) * kt, 1), P(j * kt, (j + 1) * kt, -1)
            x0, x1 = (j * kt).exp(), ((j + 1) * kt).exp()
            right = (p1 - x0 * p) / (x1 - x0)  # E[e^{-G}; -G in (a, b)] = p1
            w[j + 1] += right
            w[j] += p - right
        w[jr] += 1 - Phi((jr * kt + t * t / 2) / t)
        al, tr = self.f_err(eps, self.tau)
        tr *= math.exp(self.theta * (jl + 1) * k * self.tau)
        v = self.f(eps, self.tau, 0) - al - tr - Phi((-jl * kt + t * t / 2) / t)
        for j in w:
            if j: v = v - w[j] * (self.f(e0 + j * kt, self.tau, 0) + tr)
        return v / w[0]

    def lower(self, truth, lam):
        """an eps slightly below truth, certified by f_lower(eps) >= delta; and the relative step back"""
        d = arb(self.delta)
        rho = max(1 - float((self.f_lower(truth) / d).mid()), 1e-12)
        for factor in (1.05, 1.3, 2, 4):
            e = truth - factor * rho / lam
            if e > 0 and self.f_lower(e) >= d: return e, 1 - e / truth
        return 0.0, 1.0

# ---------------------------------------------------------------- closed forms
def closed_form(sigma, q, N, delta):
    """q = 1: GDP with mu = sqrt(N)/sigma.  N = 1: with d_G = GDP curve at mu = 1/sigma,
    remove: delta = q d_G(log((e^eps - 1 + q)/q));
    add:    delta = (1 - e^eps (1-q)) d_G(log(q e^eps/(1 - e^eps(1-q)))), 0 if e^eps (1-q) >= 1.
    Returns mpmath (eps_remove, eps_add)."""
    mp = mpmath.mp
    with mpmath.workdps(330 if delta < 1e-150 else 200):
        M = mpmath.mpf
        if q == 1:
            mu = mpmath.sqrt(M(N)) / M(sigma)
            e = gdp_epsilon(mu, delta)
            return e, e
        mu, Q, d = 1 / M(sigma), M(q), M(delta)
        tv = Q * gdp_delta(M(0), mu)
        if tv <= d: return M(0), M(0)
        e1 = gdp_epsilon(mu, d / Q)            # d_G(e1) = d/q, then invert the log
        rem = mpmath.log1p(Q * mpmath.expm1(e1))
        def fadd(e):
            w = 1 - mpmath.exp(e) * (1 - Q)
            return w * gdp_delta(mpmath.log(Q * mpmath.exp(e) / w), mu) if w > 0 else M(0)
        lo, hi = M(0), -mpmath.log1p(-Q)
        for _ in range(150):
            m = (lo + hi) / 2
            if fadd(m) > d: lo = m
            else: hi = m
        return rem, lo

def fmt(x): return repr(float(x))

def round_down(x):                             # f64 strictly at or below an mpf
    f = float(x)
    return f if mpmath.mpf(f) <= x else math.nextafter(f, 0)

def run(sigma, q, N, delta, nmax=60000, verbose=False):
    """-> dict(lower, truth, note)"""
    t0 = time.time()
    if q == 1 or N == 1:
        rem, add = closed_form(sigma, q, N, delta)
        tr = max(rem, add)
        return dict(lower=round_down(tr), truth=float(tr), note=f"closed form{', exactly 0' if tr == 0 else ''}; add={float(add):.6g}")
    if N * q * math.erf(1 / (sigma * math.sqrt(8))) < delta * (1 - 1e-9):   # total variation is subadditive
        return dict(lower=0.0, truth=0.0, note="delta(0) <= N q TV <= delta: exactly 0")
    # pilots: eps and the slope lambda = -d log delta / d eps
    lam, e0, eta = None, None, None
    for it in range(12):
        c0 = Curve(sigma, q, N, delta, alpha=0.5, target=0.1, nmax=60000, phimax=1.2, eps_hint=e0,
                   lam_hint=lam, eta=eta, skip_above=30000 if eta is None else 1e99, verbose=verbose)
        if c0.nu == 0: eta = 1e-9; continue    # too heavy-tailed: restrict to x <= X
        e0, lam0 = c0.solve(c0.tau, 6)
        e4, _ = c0.solve(c0.tau, 4)
        if verbose: print("   pilot", e0, e4, lam0)
        if e0 == 0.0: return dict(lower=0.0, truth=0.0, note="delta(0) <= delta: exactly 0")
        if abs(e4 / e0 - 1) < 1e-6 and lam0 * c0.tau < 0.3: break
        lam = max(4 * c0.lam_hint, min(lam0, 20 * c0.lam_hint)); e0 = None
    # truth: other theta, x-contour, precision, tau
    c = Curve(sigma, q, N, delta, alpha=0.62, target=0.08, nmax=60000, extra=30, eps_hint=e0, lam_hint=lam0,
              eta=eta and eta / 3, verbose=verbose)
    eps, lam = c.solve(c.tau, 6)
    eps4, _ = c.solve(c.tau, 4)
    rad = float((c.f(eps, c.tau, 6) / arb(delta)).rad())
    # lower: loose tolerance, fine tau
    kw = dict(alpha=0.6, target=4e-3, nmax=nmax, eps_hint=eps, lam_hint=lam, tol=1e-7, verbose=verbose)
    cl = Curve(sigma, q, N, delta, skip_above=30000, **kw)
    if cl.nu == 0: cl = Curve(sigma, q, N, delta, eta=1e-6, **kw)
    low, back = cl.lower(eps, lam)
    # add direction at truth
    ca = Curve(sigma, q, N, delta, add=True, target=0.1, nmax=30000, skip_above=0, verbose=verbose)
    if ca.eps_chernoff < eps: note = f"add<={ca.eps_chernoff:.6g}(Chernoff)"
    else:
        ca = Curve(sigma, q, N, delta, add=True, target=0.1, nmax=30000, verbose=verbose)
        ea, _ = ca.solve(ca.tau, 6)
        note = f"add={ea:.10g}"
        if ea > eps: note += " ADD-IS-LARGER"
    err = max(abs(e0 / eps - 1), abs(eps4 / eps - 1), rad / (lam * eps), (eta or 0) / 3 / (lam * eps), 1e-14)
    return dict(lower=low, truth=eps, note=f"err {err:.1e} (2nd run {abs(e0/eps-1):.1e}, m4/m6 {abs(eps4/eps-1):.1e}, ball {rad:.1e}), "
                f"lower {-back:.1e}, lam*eps={lam*eps:.3g}, {note}, "
                f"{'' if c.step.X is None else 'x<=%.4g, ' % c.step.X}n={c.n}x{c.nu}/{cl.n}x{cl.nu}, {time.time()-t0:.0f}s")

if __name__ == "__main__":
    a = [float(x) for x in sys.argv[1:5]]
    print(run(*a, verbose=True))
