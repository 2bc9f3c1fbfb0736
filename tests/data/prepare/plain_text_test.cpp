#include "data/prepare/source_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/prepare/golden_samples.h"

namespace bertha {
namespace {

/// The refusal of a file with this text, which lies next to another file, so that it may be empty.
std::string refusal(const std::string& text) {
  const TempFolder folder;
  write_bytes(folder.path("text"), text);
  write_bytes(folder.path("other.txt"), "word");
  return error_of([&] {
    list_source_files({folder.path("text"), folder.path("other.txt")}, MissingFiles::kRefuse);
  });
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(PlainText, RefusesJson) {
  const std::string object = R"({"id": 1, "text": "The river \"Exe\" is long.", "url": null})";
  EXPECT_THAT(refusal(object + "\n" + object + "\n"),
              AllOf(HasSubstr("text: begins as JSON, want plain text"), HasSubstr("jq -r .text")));
  const std::string article = R"({"text": ")" + std::string(100'000, 'x') + "\"}\n";
  for (const std::string& text :
       {object, "\xef\xbb\xbf\n" + object + "\r\n\r\n" + object + "\r\n", article + article,
        "[" + object + ", " + object + "]",
        std::string("[\"The river is long.\", 1]\n[\"It is.\", 0]\n"),
        std::string("{\n  \"data\": [\n    {\n      \"text\": \"The river\"\n    }\n  ]\n}\n"),
        std::string("[\n  {\"text\": \"The river\"},\n  {\"text\": \"The sea\"}\n]\n")}) {
    EXPECT_THAT(refusal(text), HasSubstr("begins as JSON")) << text.substr(0, 80);
  }
}

TEST(PlainText, RefusesHtml) {
  for (const std::string& text :
       {std::string("<!DOCTYPE html>\n<html><body>The river</body></html>"),
        std::string("\n<HTML lang=\"en\">\n<p>The river\n"),
        std::string("<!-- saved -->\n<!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">\n"),
        std::string("<?xml version=\"1.0\"?>\n<mediawiki>\n")}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("begins as HTML or XML"), HasSubstr("html2text")))
        << text;
  }
}

TEST(PlainText, RefusesTables) {
  const std::string quoted =
      "\"3\",\"Wall St. Bears, again\",\"They said \"\"no\"\",\nand went.\"\n";
  for (const std::string& text :
       {std::string("id,text,label\n1,The river is long.,0\n2,\"It is, or was.\",1\n"),
        std::string("id,text\r\n1,\"The river, long\"\r\n2,\"It is, or was.\"\r\n"),
        "\"review\",\"sentiment\"\n" + repeated("\"The film, I think.\",\"positive\"\n", 40),
        repeated(quoted, 30), std::string("id;date;text\n1;2.3.;Der Fluss, lang\n2;4.5.;Er, ja\n"),
        std::string("sentence\tlabel\nthe river is long\t0\nit is , or was\t1\n"),
        repeated("7\tThe river is long.\t0.25\n", 4000)}) {
    EXPECT_THAT(refusal(text), HasSubstr("begins as a table of ")) << text.substr(0, 80);
  }
  EXPECT_THAT(refusal(repeated(quoted, 3)), HasSubstr("a table of 3 columns, want plain text"));
}

TEST(PlainText, LetsProsePass) {
  for (const std::string& text :
       {std::string(), std::string("\n\n"), std::string("word"),
        // Commas: as many in every line.
        repeated("Yes, no, perhaps.\n", 50), repeated("red, green, blue\n", 50),
        repeated("First, then, at last\nHe came, saw, and won.\n", 20),
        repeated("1,000 men, 20 horses\n", 20), repeated("Paris; London; Rome\n", 20),
        repeated("\u4eca\u5929,\u5929\u6c14,\u5f88\u597d\u3002\n", 20),
        std::string(100'000, 'x') + "\n", std::string(100'000, ' '),
        // Quotes.
        repeated("\"Yes,\" he said, and left.\n", 30), repeated("\"Yes\", he said.\n", 30),
        repeated("\"The whole line is a quotation.\"\n", 30),
        std::string("\"never closed\nand on\n"),
        // Tabs: indented lines, and one that numbers them.
        repeated("\tThe river is long.\n", 30),
        repeated("Genesis 1:1\tIn the beginning, God created.\n", 30),
        // Brackets and code.
        std::string("[1] A. Author, \"On rivers\".\n[2] B. Author.\n"), std::string("[1]\n[2]\n"),
        std::string("[Music]\n[Applause]\n\"Thank you.\"\n"), std::string("{ a set }\n{ b }\n"),
        std::string("{\"a\": 1} is an object of JSON.\nIt has one name.\n"),
        std::string("{\"a\": 1}\nThe line above is an object of JSON.\n"),
        std::string("< 5 men\n<p>\n"),
        std::string("The tag <html> begins a page.\n<!doctype html> stands before it.\n"),
        std::string("\xff\xfe\x00", 3), std::string("caf\xe9, th\xe9, eau\n")}) {
    EXPECT_EQ(refusal(text), "no error") << text.substr(0, 80);
  }
  for (const char* name : {"many_documents.txt", "single_document.txt", "../chinese.txt"}) {
    EXPECT_NO_THROW(list_source_files({golden_path(name)}, MissingFiles::kRefuse)) << name;
  }
}

}  // namespace
}  // namespace bertha
