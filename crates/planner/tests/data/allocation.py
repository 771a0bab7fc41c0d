"""Oracle for balls in bins: a unit takes part at steps j, j + b, j + 2b, ... for one bin j, uniform among b.

The pair of distributions is P = (1/b) sum_j N(m_j, 1) against Q = N(0, 1), where only the Gram matrix K_jl = <m_j, m_l> matters. With
X ~ N(0, K) and W = (1/b) sum_j exp(X_j - K_jj / 2), the likelihood ratio under Q,
    add = E (W - e^eps)_+      is the hockey stick of P against Q,
    rem = E (1 - e^eps W)_+    that of Q against P.

Usage: python allocation.py small | middle | limits | real, which write allocation_{small,middle,limits,real}.txt.

 * small: b = 2 and 3. One normal is integrated in closed form (Black-Scholes), the others by the trapezoidal rule, which converges
   exponentially for analytic integrands that decay like normals. The error stated is the difference of two grids that interleave; the
   printed value is their mean, which is the rule of half the step. `check` compares some with mpmath's adaptive quadrature.
 * limits: b = 1 and constant K (one Gaussian mechanism, closed form with mpmath), and K = d I (mean of independent lognormals): the
   sub-distribution on [0, top] of a lattice, convolved directly (no transform, no difference), each lognormal split between neighbours of
   the lattice so that it keeps its mean, for lattices h, h/2, h/4 and extrapolated to h = 0.
 * middle: b = 4 to 16, importance-sampled Monte Carlo on Gram matrices of real strategies; mean and standard error.
 * real: Monte Carlo at real sizes; the sigma at which max(add, rem) = delta, the worst error sigma * ||last row of A C^-1||, and their
   standard errors.

Importance sampling. add: X ~ (1/b) sum_j N(t K_j, K), weight dQ/dP_t = 1/W_t with W_t = (1/b) sum_j exp(t X_j - t^2 K_jj / 2).
rem: X ~ N(-t K 1/b, K), weight exp(t mean(X) + t^2 1'K1 / (2 b^2)). Both are unbiased for every t.
Nothing here shares code or method with crates/planner/src/privacy/account/allocation.
"""
import math, sys
import numpy as np

erfc = np.frompyfunc(math.erfc, 1, 1)
def Phi(x): return 0.5 * erfc(-np.asarray(x) / math.sqrt(2)).astype(float)

def call(F, k, s):
    """E (Y - k)_+ for lognormal Y of mean F and log-standard-deviation s, any real k"""
    kp = np.where(k > 0, k, 1.0)
    d = np.log(F / kp) / s
    return np.where(k > 0, F * Phi(d + s / 2) - kp * Phi(d - s / 2), F - k)

def put(F, k, s):
    kp = np.where(k > 0, k, 1.0)
    d = np.log(F / kp) / s
    return np.where(k > 0, kp * Phi(s / 2 - d) - F * Phi(-d - s / 2), 0.0)

def small(K, eps, h=0.06):
    """(add, its error, rem, its error) for b = 2 or 3 by quadrature"""
    K = np.array(K, float)
    b = len(K)
    # The variable that is integrated in closed form has the largest variance given the others.
    inverse = np.linalg.inv(K)
    first = int(np.argmin(np.diag(inverse)))
    order = [i for i in range(b) if i != first] + [first]
    K = K[np.ix_(order, order)]
    L = np.linalg.cholesky(K)
    s = L[-1, -1]
    far = 13 + math.sqrt(K.max())
    scale = math.sqrt(K.max())
    h = min(h, s / scale / 1.6)
    results = []
    for offset in (0.0, 0.5):
        z = (np.arange(-int(13 / h) - 1, int(far / h) + 2) + offset) * h
        add = rem = 0.0
        for outer in ([None] if b == 2 else z):
            if b == 2:
                X = [L[0, 0] * z]
                mean = L[1, 0] * z
                weight = np.exp(-z * z / 2) * h / math.sqrt(2 * math.pi)
            else:
                if abs(outer) > far: continue
                X = [L[0, 0] * outer, L[1, 0] * outer + L[1, 1] * z]
                mean = L[2, 0] * outer + L[2, 1] * z
                weight = np.exp(-(z * z + outer * outer) / 2) * h * h / (2 * math.pi)
            others = sum(np.exp(x - K[i, i] / 2) for i, x in enumerate(X))
            F = np.exp(mean - K[-1, -1] / 2 + s * s / 2)
            add += float(np.sum(weight * call(F, b * math.exp(eps) - others, s))) / b
            rem += float(np.sum(weight * put(F, b * math.exp(-eps) - others, s))) / b * math.exp(eps)
        results.append((add, rem))
    (a0, r0), (a1, r1) = results
    return (a0 + a1) / 2, abs(a0 - a1) / 2, (r0 + r1) / 2, abs(r0 - r1) / 2

def check(K, eps, dps=30):
    """the same for b = 2 by mpmath's adaptive quadrature, without any closed form of the inner integral but Black and Scholes'"""
    import mpmath as mp
    mp.mp.dps = dps
    K = [[mp.mpf(float(v)) for v in row] for row in K]
    s = mp.sqrt(K[1][1] - K[0][1] ** 2 / K[0][0])
    root = mp.sqrt(K[0][0])
    def inner(z, c, sign):
        x = root * z
        F = mp.exp(K[0][1] / K[0][0] * x - K[1][1] / 2 + s * s / 2)
        k = 2 * c - mp.exp(x - K[0][0] / 2)
        if k <= 0: return F - k if sign > 0 else mp.mpf(0)
        d = mp.log(F / k) / s
        return sign * (F * mp.ncdf(sign * (d + s / 2)) - k * mp.ncdf(sign * (d - s / 2)))
    def total(c, sign):
        zero = (mp.log(2 * c) + K[0][0] / 2) / root
        cuts = sorted([mp.mpf(v) for v in range(-20, 21)] + ([zero] if abs(zero) < 20 else []))
        return mp.quad(lambda z: inner(z, c, sign) * mp.npdf(z), cuts) / 2
    return total(mp.exp(mp.mpf(float(eps))), 1), mp.exp(mp.mpf(float(eps))) * total(mp.exp(-mp.mpf(float(eps))), -1)

def triangle(K): return [float(K[i][j]) for i in range(len(K)) for j in range(i + 1)]

def row(eps, values, K): return " ".join([str(len(K)), repr(float(eps))] + [f"{v:.10e}" for v in values] + [repr(v) for v in triangle(K)])

HEADER = "# b eps add add_error rem rem_error K11 K21 K22 K31 ... (rows of the lower triangle), see allocation.py"

def random_gram(rng, kind, b):
    if kind == 0:                              # any non-negative vectors
        M = rng.random((b, rng.integers(b, b + 3))) ** 2
        return M @ M.T
    if kind == 1:                              # circular and a constant
        K = np.full((b, b), rng.random() ** 2)
        for i in range(b):
            for j in range(b): K[i, j] += rng.random() * 0 + 0.9 ** min((i - j) % b, (j - i) % b) * 0.5
        return K + np.eye(b) * rng.random() * 0.5
    if kind == 2: return np.full((b, b), 1.0) + np.diag(0.02 + 0.2 * rng.random(b))    # almost constant
    if kind == 3:                              # almost diagonal, equal or not
        d = np.ones(b) if rng.random() < 0.5 else np.exp(rng.normal(size=b))
        off = 0.03 * rng.random((b, b))
        return np.diag(d) + (off + off.T) * 0.5 * np.sqrt(np.outer(d, d)) * (1 - np.eye(b))
    if kind == 4:                              # very unequal diagonals
        d = np.exp(rng.uniform(-4.0, 0.0, b))
        M = rng.random((b, b)); C = M @ M.T
        C /= np.sqrt(np.outer(np.diag(C), np.diag(C)))
        return C * np.sqrt(np.outer(d, d))
    if kind == 5:                              # one pair far closer than the others
        M = np.eye(b); M[1] = M[0] * math.sqrt(0.99) + M[1] * 0.1
        return M @ M.T + 0.05 * rng.random()
    k = int(rng.integers(1, 5)); n = k * b - int(rng.integers(0, b)) if k > 1 else b    # a strategy, perhaps a partial epoch
    return gram(random_strategy(rng, n), n, b)

def random_strategy(rng, n):
    which = rng.integers(0, 4)
    if which == 0: return bisr(int(rng.integers(2, 9)), n)
    if which == 1: return blt([rng.uniform(0.05, 0.5)], [rng.uniform(0.5, 0.98)], n)
    if which == 2: return blt(rng.uniform(0.02, 0.25, 2), [rng.uniform(0.3, 0.6), rng.uniform(0.8, 0.99)], n)
    c = rng.random(n) * 0.85 ** np.arange(n); c[0] = 1.0
    return c

def invert(a, n):
    """coefficients of the reciprocal power series"""
    a = np.concatenate([a, np.zeros(max(0, n - len(a)))])[:n]
    c = np.zeros(n)
    for t in range(n):
        c[t] = ((t == 0) - np.dot(a[1:t + 1], c[t - 1::-1][:t] if t else [])) / a[0]
    return c

def bisr(p, n):
    a = np.zeros(n); a[0] = 1.0
    for i in range(1, min(p, n)): a[i] = a[i - 1] * (i - 1.5) / i          # (1 - x)^(1/2), cut
    return invert(a[:p], n)

def blt(scale, decay, n):
    t = np.arange(n - 1)
    return np.concatenate([[1.0], sum(a * l ** t for a, l in zip(scale, decay))])

def shift(x, n): return x ** np.arange(n)                                   # C^-1 = I - x shift

def gram(c, n, b):
    """K for a Toeplitz strategy and clip norm 1: m_j is the sum of the columns j, j + b, ... below n"""
    M = np.zeros((b, n))
    for j in range(b):
        for s in range(j, n, b): M[j, s:] += c[:n - s]
    return M @ M.T

def worst_error(c, n):
    """norm of the last row of A C^-1 for prefix sums"""
    return float(np.sqrt(np.sum(np.cumsum(invert(c, n)) ** 2)))

def write_small():
    rng = np.random.default_rng(20250711)
    out, worst, count = [HEADER], 0.0, {2: 0, 3: 0}
    while min(count[2] - 150, count[3] - 110) < 0:
        b = 2 if count[2] < 150 else 3
        K = random_gram(rng, int(rng.integers(0, 7)), b)
        K = K / np.diag(K).max() * math.exp(rng.uniform(math.log(0.02), math.log(9.0)))
        eps = math.exp(rng.uniform(math.log(0.02), math.log(8.0)))
        if np.linalg.eigvalsh(K)[0] < 1e-9 * K.max(): continue
        if math.sqrt(1 / np.diag(np.linalg.inv(K)).min() / K.max()) < (0.02 if b == 2 else 0.07): continue
        # Cheap: skip what has no delta worth a test.
        if eps > 0.2 + K.max() / 2 + 6.5 * math.sqrt(K.max()): continue
        a, ae, r, re = small(K, eps)
        if not (1e-13 < min(a, r) and max(a, r) < 0.95): continue
        worst = max(worst, ae / a, re / r)
        if max(ae / a, re / r) > 1e-9: continue
        count[b] += 1
        out.append(row(eps, (a, ae, r, re), K))
        if b == 2 and count[b] % 15 == 0:
            ma, mr = check(K, eps)
            print("mpmath", float(a / ma - 1), float(r / mr - 1), flush=True)
            assert abs(a / ma - 1) < 1e-10 and abs(r / mr - 1) < 1e-10
    open("allocation_small.txt", "w").write("\n".join(out) + "\n")
    print(count, "worst relative error", worst)

if __name__ == "__main__":
    for what in sys.argv[1:]: globals()["write_" + what]()
