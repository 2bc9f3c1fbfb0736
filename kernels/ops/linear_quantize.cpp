#include "kernels/ops/linear_quantize.h"

#include "kernels/base/check.h"

namespace bertha {
namespace {

template <class Args>
void validate_both(const Args& args, const char* field, const View& result) {
  validate(args.linear);
  validate(args.quantize);
  const ArgumentCheck check(Args::kName);
  check.same("quantize.x", args.quantize.x, result.dtype, result);
  if (args.quantize.x.data != result.data) {
    check.refuse("quantize.x", "is not linear.", field, ", want the same memory");
  }
}

}  // namespace

void validate(const LinearFwdQuantize& args) { validate_both(args, "y", args.linear.y); }
void validate(const LinearBwdDataQuantize& args) { validate_both(args, "dx", args.linear.dx); }

}  // namespace bertha
