/* The kernels of the NAS Parallel Benchmarks (Bailey et al., RNR-94-007), written from their specification. */
#ifndef CANELE_BENCH_NAS_NAS_H
#define CANELE_BENCH_NAS_NAS_H

/* Each runs a problem (0 to 3: class S, W, A, B) on all ranks. It sets the time of the part that the specification times,
   in seconds, and `right` to 1 if the results are those of the specification, to 0 if not. */
void nas_ep(int problem, double *seconds, int *right);
void nas_is(int problem, double *seconds, int *right);
void nas_cg(int problem, double *seconds, int *right);
void nas_mg(int problem, double *seconds, int *right);
void nas_ft(int problem, double *seconds, int *right);
void nas_lu(int problem, double *seconds, int *right);
void nas_bt(int problem, double *seconds, int *right);
void nas_sp(int problem, double *seconds, int *right);

#endif
