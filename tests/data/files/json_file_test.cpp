#include "data/files/json_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/files/text_file.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

std::string repeated(const std::string& part, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += part;
  return text;
}

std::string json_error_of(const std::string& text) {
  try {
    parse_json(text);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ParseJson, TakesAsManyLevelsAsItSays) {
  const int64_t pairs = kMaxJsonLevels / 2;
  const nlohmann::json value =
      parse_json(repeated("{\"a\":[", pairs) + repeated("]}", pairs) + "\n");
  EXPECT_EQ(nlohmann::json(value), value);
}

TEST(ParseJson, RefusesOneLevelMoreNamingItsPlace) {
  const std::string text = "{\n " + repeated("[", kMaxJsonLevels);
  EXPECT_EQ(json_error_of(text), "line 2, byte 65: nested deeper than 64 levels");
  EXPECT_THAT(json_error_of(repeated("[", 400'000)), HasSubstr("line 1, byte 65"));
  EXPECT_THAT(json_error_of(repeated("{\"a\":", 400'000)), HasSubstr("nested deeper"));
}

TEST(ParseJson, RefusesANameThatAnObjectHasTwice) {
  EXPECT_EQ(json_error_of(R"({"a": 1, "b": {"a": 2}, "a": 3})"), "\"a\" is given twice");
  EXPECT_EQ(json_error_of(R"([{"a": 1}, {"a": 2}, {"b": [{"c": 1, "c": 1}]}])"),
            "\"c\" is given twice");
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])").size(), 2u);
  const std::string name(1000, 'n');
  EXPECT_LT(json_error_of("{\"" + name + "\": 1, \"" + name + "\": 2}").size(), 250u);
}

TEST(ParseJson, CountsNoBracketsInsideStrings) {
  const std::string text = "[\"" + repeated("[{\\\"", 1000) + "\"]";
  EXPECT_EQ(parse_json(text)[0].get<std::string>().size(), 3000u);
  const std::string closed = "[\"\\\\\"," + repeated("[", kMaxJsonLevels);
  EXPECT_THAT(json_error_of(closed), HasSubstr("nested deeper"));
}

TEST(ParseJson, CountsListsSideBySideOnce) {
  EXPECT_EQ(parse_json("[" + repeated("[],{},", 1000) + "0]").size(), 2001u);
}

TEST(ParseJson, SaysWhereTextThatIsNoJsonIsWrong) {
  EXPECT_THAT(json_error_of("{\"a\": 1,\n oops}"), StartsWith("parse error at line 2, column 2"));
  EXPECT_THAT(json_error_of(""), StartsWith("parse error at line 1"));
  EXPECT_THAT(json_error_of("[1e999]"), HasSubstr("1e999"));
  EXPECT_THAT(json_error_of("\"\xff\""), HasSubstr("invalid"));
}

TEST(JsonField, RefusesWhatIsNoWholeNumberInRange) {
  const std::string path = "state.json";
  const auto complaint = [&](const std::string& value) {
    const nlohmann::json root = parse_json("{\"deep\": {\"step\": " + value + "}}");
    return error_of([&] { JsonField(path, root)["deep"]["step"].integer(-1, 10); });
  };
  for (const char* value : {"-2", "11", "3.99", "3.0", "1e300", "-1e12", "18446744073709551615",
                            "true", "\"3\"", "null", "[]"}) {
    EXPECT_THAT(complaint(value), AllOf(StartsWith("state.json: field deep.step is "),
                                        HasSubstr("want a whole number from -1 to 10")))
        << value;
  }
  const nlohmann::json root = parse_json("[-1, 10, 9223372036854775807]");
  std::vector<int64_t> found;
  JsonField(path, root).for_each([&](const JsonField& field) {
    found.push_back(field.integer(-1, INT64_MAX));
  });
  EXPECT_EQ(found, (std::vector<int64_t>{-1, 10, INT64_MAX}));
}

TEST(JsonField, TakesNumbersOfTheirOwnTypeOnly) {
  const std::string path = "p";
  const nlohmann::json root = parse_json("[0.5, 3, true, \"x\"]");
  std::vector<std::string> complaints;
  JsonField(path, root).for_each([&](const JsonField& field) {
    complaints.push_back(error_of([&] { field.number(); }));
  });
  const std::string none = error_of([] {});
  EXPECT_EQ(complaints[0], none);
  EXPECT_EQ(complaints[1], none);
  EXPECT_EQ(complaints[2], "p: field [2] is true, want a number");
  EXPECT_EQ(complaints[3], "p: field [3] is \"x\", want a number");
}

TEST(ReadTextFile, NamesAFileThatCannotBeReadAndTheReason) {
  const TempFolder folder;
  const auto complaint = [](const std::string& path) {
    return error_of([&] { read_text_file(path, 1000); });
  };
  EXPECT_EQ(complaint(folder.path("none")),
            folder.path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(complaint(folder.path()), folder.path() + ": cannot read: Is a directory");
  EXPECT_EQ(complaint("/dev/zero"), "/dev/zero: larger than 1000 bytes; give another file");
  const std::string whole(1000, 'x');
  EXPECT_EQ(read_text_file(folder.write("whole", whole), 1000), whole);
}

}  // namespace
}  // namespace bertha
