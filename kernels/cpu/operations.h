#pragma once

#include "kernels/cpu/worker_pool.h"
#include "kernels/ops.h"

namespace bertha {

// One function per operation, defined in the file of the operation's stem. Arguments are validated.
// Views named io must be f32 unless the operation's file says otherwise.

void run_cpu(WorkerPool& pool, const EmbeddingFwd& args);
void run_cpu(WorkerPool& pool, const EmbeddingBwd& args);
void run_cpu(WorkerPool& pool, const LinearFwd& args);
void run_cpu(WorkerPool& pool, const LinearBwdData& args);
void run_cpu(WorkerPool& pool, const LinearBwdWeight& args);
void run_cpu(WorkerPool& pool, const ActivationBwd& args);
void run_cpu(WorkerPool& pool, const AttentionFwd& args);
void run_cpu(WorkerPool& pool, const AttentionBwd& args);
void run_cpu(WorkerPool& pool, const ResidualLnFwd& args);
void run_cpu(WorkerPool& pool, const ResidualLnBwd& args);
void run_cpu(WorkerPool& pool, const LayerNormFwd& args);
void run_cpu(WorkerPool& pool, const LayerNormBwd& args);
void run_cpu(WorkerPool& pool, const SoftmaxFwd& args);
void run_cpu(WorkerPool& pool, const SoftmaxBwd& args);
void run_cpu(WorkerPool& pool, const GatherRows& args);
void run_cpu(WorkerPool& pool, const ScatterAddRows& args);
void run_cpu(WorkerPool& pool, const CrossEntropy& args);
void run_cpu(WorkerPool& pool, const SumOfSquares& args);
void run_cpu(WorkerPool& pool, const ClipLocal& args);
void run_cpu(WorkerPool& pool, const LambPrepare& args);
void run_cpu(WorkerPool& pool, const LambMoments& args);
void run_cpu(WorkerPool& pool, const LambApply& args);
void run_cpu(WorkerPool& pool, const Cast& args);
void run_cpu(WorkerPool& pool, const Fill& args);
void run_cpu(WorkerPool& pool, const Scale& args);
void run_cpu(WorkerPool& pool, const GradientScale& args);
void run_cpu(WorkerPool& pool, const PreluFwd& args);
void run_cpu(WorkerPool& pool, const PreluBwd& args);
void run_cpu(WorkerPool& pool, const BatchNormReluFwd& args);
void run_cpu(WorkerPool& pool, const BatchNormReluBwd& args);

}  // namespace bertha
