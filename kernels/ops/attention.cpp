#include "kernels/ops/attention.h"

#include "kernels/base/check.h"

namespace bertha {
namespace {

void check_group(const ArgumentCheck& check, const SequenceGroup& group) {
  check.at_least("groups.num_seqs", group.num_seqs, 0);
  check.at_least("groups.num_tokens", group.num_tokens, 0);
  check.at_least("groups.bucket_tokens", group.bucket_tokens, group.longest_seq_tokens);
  if (group.num_tokens > group.num_seqs * group.longest_seq_tokens) {
    check.refuse("groups.num_tokens", "= ", group.num_tokens, " in ", group.num_seqs,
                 " sequences of at most ", group.longest_seq_tokens, " tokens");
  }
}

template <class Args>
void check_groups(const ArgumentCheck& check, const Args& args, int64_t seqs) {
  int64_t next_seq = 0;
  int64_t next_token = 0;
  for (const SequenceGroup& group : args.groups) {
    check_group(check, group);
    if (group.first_seq != next_seq || group.first_token != next_token) {
      check.refuse("groups", "continue at sequence ", group.first_seq, ", token ",
                   group.first_token, ", want sequence ", next_seq, ", token ", next_token);
    }
    check.at_most("groups.longest_seq_tokens", group.longest_seq_tokens, args.max_seq_tokens);
    next_seq += group.num_seqs;
    next_token += group.num_tokens;
  }
  if (next_seq != seqs) {
    check.refuse("groups", "cover ", next_seq, " sequences, want all ", seqs);
  }
  check.at_most("groups: sum of num_tokens", next_token, args.qkv.extent(0));
}

/// The fields that both directions share.
template <class Args>
void check_shared(const ArgumentCheck& check, const Args& args) {
  check.rank("qkv", args.qkv, 4);
  check.io("qkv", args.qkv);
  const int64_t tokens = args.qkv.extent(0);
  const int64_t heads = args.qkv.extent(2);
  const int64_t head_size = args.qkv.extent(3);
  check.at_least("A", heads, 1);
  check.at_least("D", head_size, 1);
  check.view("qkv", args.qkv, args.qkv.dtype, {tokens, 3, heads, head_size});
  check.rank("cu_seqlens", args.cu_seqlens, 1);
  check.at_least("extent of cu_seqlens", args.cu_seqlens.extent(0), 1);
  check.view("cu_seqlens", args.cu_seqlens, DType::kI32, {args.cu_seqlens.extent(0)});
  check.view("lse", args.lse, DType::kF32, {heads, tokens});
  check.at_least("max_seq_tokens", args.max_seq_tokens, 32);
  check.multiple_of("max_seq_tokens", args.max_seq_tokens, 32);
  check.positive("scale", args.scale);
  check.dropout(args.dropout);
  check.mask(args.mask, args.dropout, {tokens, heads, args.max_seq_tokens / 8});
  check_groups(check, args, args.cu_seqlens.extent(0) - 1);
}

}  // namespace

void validate(const AttentionFwd& args) {
  const ArgumentCheck check(AttentionFwd::kName);
  check_shared(check, args);
  check.view("out", args.out, args.qkv.dtype,
             {args.qkv.extent(0), args.qkv.extent(2), args.qkv.extent(3)});
}

void validate(const AttentionBwd& args) {
  const ArgumentCheck check(AttentionBwd::kName);
  check_shared(check, args);
  const DType io = args.qkv.dtype;
  const int64_t tokens = args.qkv.extent(0);
  const int64_t heads = args.qkv.extent(2);
  const int64_t head_size = args.qkv.extent(3);
  check.views({{"dout", args.dout}, {"out", args.out}}, io, {tokens, heads, head_size});
  check.view("dqkv", args.dqkv, io, {tokens, 3, heads, head_size});
  check.optional_view("dbias", args.dbias, io, {3 * heads * head_size});
  check_fp8_result(check, "dqkv_fp8", args.dqkv_fp8, tokens, 3 * heads * head_size);
}

}  // namespace bertha
