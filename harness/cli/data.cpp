#include "harness/cli/command.h"
#include "harness/cli/data_commands.h"

namespace bertha {

void add_data_command(CLI::App& program, Chosen& chosen) {
  CLI::App& data = add_command(
      program, chosen,
      {.name = "data",
       .description = "Prepares, converts, packs, checks and describes training data.",
       .examples = {"bertha data vocab --text text/ --size 4096 --output data/vocab.txt",
                    "bertha data prepare --text text/ --vocab data/vocab.txt --output data/train",
                    "bertha data verify data/train"}});
  add_data_vocab(data, chosen);
  add_data_prepare(data, chosen);
  add_data_convert(data, chosen);
  add_data_pack(data, chosen);
  add_data_verify(data, chosen);
  add_data_stats(data, chosen);
  add_data_dump_batches(data, chosen);
}

}  // namespace bertha
