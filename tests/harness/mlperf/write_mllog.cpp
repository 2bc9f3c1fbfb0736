// Writes a benchmark log as a run would, with numbers that no run here can reach.
//
// usage: write_mllog OUT BATCH_SEQS SEED STATUS INIT_MS RUN_MS [SAMPLES:ACCURACY]...

#include <iostream>
#include <string>

#include "harness/mlperf/log_writer.h"

int main(int count, char** words) {
  if (count < 7) {
    std::cerr << "write_mllog: want OUT BATCH_SEQS SEED STATUS INIT_MS RUN_MS [SAMPLES:ACCURACY]\n";
    return 2;
  }
  const int64_t run_ms = std::atoll(words[6]);
  bertha::Config config;
  config.train.global_batch_seqs = std::atoll(words[2]);
  config.train.seed = std::atoll(words[3]);
  bertha::RunFacts facts;
  facts.world_size = 8;
  facts.tensor_names = {"bert/embeddings/word_embeddings", "bert/embeddings/LayerNorm/gamma"};

  int64_t now_ms = 1'715'252'859'434;
  bertha::MlperfLog log(words[1], [&now_ms] { return now_ms; });
  log.init_start(config);
  now_ms += std::atoll(words[5]);
  log.init_stop(config, facts);
  log.run_start(0);
  const int64_t first_ms = now_ms;
  int64_t samples = 0;
  for (int i = 7; i < count; ++i) {
    const std::string evaluation = words[i];
    samples = std::stoll(evaluation);
    now_ms = first_ms + run_ms * (i - 6) / (count - 7);
    log.eval_start(samples);
    bertha::EvalRecord record;
    record.samples = samples;
    record.mlm_accuracy = std::stod(evaluation.substr(evaluation.find(':') + 1));
    log.eval_stop(record);
  }
  now_ms = first_ms + run_ms;
  log.run_stop({.status = words[4], .samples = samples, .joules = 9e6}, 10'000);
  return 0;
}
