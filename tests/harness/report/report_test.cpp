#include "harness/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/report/text_format.h"

namespace bertha {
namespace {

TEST(Report, TextAndJsonHaveTheSameFigures) {
  Report report(12);
  report.line("title of {}", figure("name", std::string("a")));
  report.row("short", "{:.1f} of {}", figure("share", 0.25),
             figure("bytes", int64_t{2048}, bytes_text));
  report.row("a name that is longer", "{} and {}", figure("list/0/calls", 3), figure("", 4));
  report.table("as\n it is\n");
  report.put("hidden", nullptr);
  EXPECT_EQ(report.text(),
            "title of a\n"
            "  short     0.2 of 2.0 KiB\n"
            "  a name that is longer 3 and 4\n"
            "as\n it is\n");
  EXPECT_EQ(report.json(), ReportJson({{"name", "a"},
                                       {"share", 0.25},
                                       {"bytes", 2048},
                                       {"list", {{{"calls", 3}}}},
                                       {"hidden", nullptr}}));
}

TEST(Report, NamesOfRowsMayBeginALine) {
  Report report(6, 0);
  report.row("name", "{}", 1);
  report.row("", "{}", 2);
  EXPECT_EQ(report.text(), "name  1\n      2\n");
  EXPECT_EQ(report.json(), ReportJson::object());
}

TEST(Report, ArraysGrow) {
  Report report;
  report.put("ranks", ReportJson::array());
  report.put("ranks/-", 1);
  report.put("ranks/-", {{"two", 2}});
  EXPECT_EQ(report.json().dump(), R"({"ranks":[1,{"two":2}]})");
}

TEST(Report, NotANumberHasNoSign) {
  Report report;
  report.line("{:.3f}", figure("loss", -std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(report.text(), "nan\n");
}

}  // namespace
}  // namespace bertha
