<?xml version="1.0"?>
<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:key name="by-name" match="record" use="name"/>
  <xsl:template match="/records">
    <table>
      <xsl:for-each select="record">
        <xsl:sort select="name"/>
        <tr id="{@number}">
          <td><xsl:value-of select="concat(name, ': ', count(key('by-name', name)))"/></td>
          <xsl:for-each select="tag"><td><xsl:value-of select="translate(., 'abc', 'ABC')"/></td></xsl:for-each>
        </tr>
      </xsl:for-each>
    </table>
  </xsl:template>
</xsl:stylesheet>
