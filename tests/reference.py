"""A dense LDMNet in NumPy, written from the paper's equations alone; it shares no line with the package."""

import numpy as np


def distances(points):
    """|p_i - p_j| by differences, one row at a time: no cancellation."""
    points = np.asarray(points, dtype=np.float64)
    return np.stack([np.sqrt(((points - p) ** 2).sum(axis=1)) for p in points])


def nearest(points, k, groups=None):
    """For each point, the list of its (distance, index) within its group, nearest first, itself left out."""
    d = distances(points)
    n = len(d)
    groups = np.zeros(n, dtype=int) if groups is None else np.asarray(groups)
    rows = []
    for i in range(n):
        others = [j for j in range(n) if j != i and groups[j] == groups[i]]
        rows.append(sorted((d[i, j], j) for j in others)[:k])
    return rows


def sigmas(rows, sigma_neighbor, floor):
    """Distance to the 10th neighbour, or to the farthest where there are fewer; never below the floor."""
    kept = [row[:sigma_neighbor] for row in rows]
    return np.array([max(row[-1][0], floor) if row else 1.0 for row in kept])


def weights(points, groups=None, k=20, sigma_neighbor=10):
    """Eq. (23) on the truncated graph, max(W, W'), W_ii = 1."""
    rows = nearest(points, max(k, sigma_neighbor), groups)
    sigma = sigmas(rows, sigma_neighbor, floor=1e-9 * max(distances(points).max(), 1e-300))
    W = np.eye(len(rows))
    for i, row in enumerate(rows):
        for d, j in row[:k]:
            W[i, j] = np.exp(-(d**2) / (sigma[i] * sigma[j]))
    return np.maximum(W, W.T)


def laplacian(W):
    """Eq. (21): L_ii sums over j != i."""
    off = W - np.diag(np.diag(W))
    return np.diag(off.sum(axis=1)) - off


def matrices(W, c, mass):
    """A and M of A u = c M v: eq. (19) as printed, or with the data term's W lumped to its row sums."""
    M = W if mass == "consistent" else np.diag(W.sum(axis=1))
    return laplacian(W) + c * M, M


def solve(W, v, c, mass):
    A, M = matrices(W, c, mass)
    return np.linalg.solve(A, c * (M @ v))


class ReferenceLDMNet:
    """Algorithm 1 without its SGD: each call of `step` is given the features that the SGD arrived at."""

    def __init__(self, inputs, groups, mu, lambda_tilde, mass, k=20, sigma_neighbor=10):
        self.inputs = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
        self.groups, self.mu, self.mass, self.k, self.sigma_neighbor = groups, mu, mass, k, sigma_neighbor
        self.c = mu / lambda_tilde
        self.alpha = self.Z = self.target = None

    def step(self, f):
        f = np.asarray(f, dtype=np.float64)
        self.Z = np.zeros_like(f) if self.alpha is None else self.Z + self.alpha - f  # eq. (8)
        W = weights(np.hstack([self.inputs, f]), self.groups, self.k, self.sigma_neighbor)
        self.alpha = solve(W, f - self.Z, self.c, self.mass)  # eqs. (19), (22)
        self.target = self.alpha + self.Z
        return self.target

    def penalty(self, f, index):
        """The mean over a batch of E_i = mu/2 |alpha_i - (f_i - Z_i)|^2: eqs. (9) and (10)."""
        return np.mean([self.mu / 2 * np.sum((self.target[i] - f[b]) ** 2) for b, i in enumerate(index)])

    def penalty_gradient(self, f, index):
        """Eq. (11), row by row, over the batch size."""
        return np.stack([self.mu * (f[b] - self.target[i]) for b, i in enumerate(index)]) / len(index)
